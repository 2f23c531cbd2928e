"""Generators of toy corpora that a small model can learn."""
