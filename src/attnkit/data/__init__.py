"""Batches of token ids: on-disk store, data order, sentence pairs."""
