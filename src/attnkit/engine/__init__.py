"""Training of runs, independent of the task."""
