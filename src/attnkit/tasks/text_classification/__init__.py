"""Hierarchical attention networks over documents."""
