"""Progress of long work: commands and calls in a terminal, calls in a notebook."""
