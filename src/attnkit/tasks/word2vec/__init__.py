"""Word vectors from raw text: configuration, training, storage and queries. Torch-free."""
