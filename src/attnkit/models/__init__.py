"""Model architectures, from token ids to tensors."""
