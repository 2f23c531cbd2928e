"""Decoding for all models: greedy search, beam search, sampling, constraints."""
