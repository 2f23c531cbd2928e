"""Attention as one operator: alignment functions, distribution functions, and their uses."""
