"""Training loop, optimizers, schedules and losses."""
