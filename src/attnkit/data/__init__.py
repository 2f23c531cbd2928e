"""Training data: on-disk stores, epoch plans, datasets and batches."""
