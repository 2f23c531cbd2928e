"""Word vectors from raw text: what is configured, in which pieces it is trained, kept and used. Torch-free."""
