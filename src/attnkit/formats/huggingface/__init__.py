"""The Hugging Face layouts: names of files, keys and tensors."""
