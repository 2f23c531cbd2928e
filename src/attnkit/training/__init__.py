"""The loop, optimizers, schedules and losses. Knows nothing of what a batch means."""
