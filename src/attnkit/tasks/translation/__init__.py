"""Translation: parallel text to a sequence-to-sequence model, and lines to translations."""
