"""Hugging Face formats: names of files, configuration keys and tensors."""
