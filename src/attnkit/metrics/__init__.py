"""Scores: strings and numbers in, numbers out. Knows no torch."""
