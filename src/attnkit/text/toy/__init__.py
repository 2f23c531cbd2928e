"""Generators of parallel text that a small model can learn: English to French, reversal, summaries, code."""
