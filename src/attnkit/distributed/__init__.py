"""Process groups: ranks, collectives that end together, heartbeats."""
