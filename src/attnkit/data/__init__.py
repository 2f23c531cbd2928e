"""Ids to batches: the store on disk, the order, the pairs. Knows no models."""
