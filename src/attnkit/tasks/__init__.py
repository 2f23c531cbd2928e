"""One file, one kind of job: the only place that joins data, model, loss, search, metric and files."""
