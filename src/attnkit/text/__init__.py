"""Text processing: lines, checks, vocabularies, tokenization."""
