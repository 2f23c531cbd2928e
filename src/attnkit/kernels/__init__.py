"""Counting loops over plain arrays, compiled where numba is installed. Knows no torch and no files."""
