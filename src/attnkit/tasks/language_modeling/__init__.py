"""BERT and GPT: pretraining on raw text, mask filling and text generation."""
