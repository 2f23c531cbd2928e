"""Tasks: the only modules that combine data, models, losses, search and metrics."""
