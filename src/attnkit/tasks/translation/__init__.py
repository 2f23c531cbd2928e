"""Translation: training, evaluation and use of sequence-to-sequence models."""
