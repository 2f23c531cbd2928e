"""Evaluation metrics on strings and numbers."""
