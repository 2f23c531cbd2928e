"""BERT and GPT: pretraining on raw text, masked tokens, generation."""
