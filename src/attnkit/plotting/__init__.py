"""Figures for terminals and HTML pages, as strings."""
