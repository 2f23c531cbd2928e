"""Weights, configurations and word vectors in the formats of other systems."""
