"""Numeric kernels over NumPy arrays, compiled if numba is installed."""
