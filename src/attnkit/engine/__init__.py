"""Training, checkpointing and loading of runs, independent of the task."""
