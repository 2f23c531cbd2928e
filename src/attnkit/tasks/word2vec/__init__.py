"""Word vectors: configuration, training, files and queries. Torch-free."""
