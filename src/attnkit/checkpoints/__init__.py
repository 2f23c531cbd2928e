"""The run folder: checkpoints with a manifest, discovery, retention, lock."""
