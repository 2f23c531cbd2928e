"""The one model package: ids and sizes in, tensors out. Knows no text, files, losses or optimizers."""
