"""Run folders: checkpoints with manifests, discovery, retention, logs and lock."""
