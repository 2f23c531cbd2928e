"""A pretrained encoder for classification, tagging and extractive question answering."""
