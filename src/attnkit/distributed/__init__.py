"""Process groups: ranks, synchronized collectives and heartbeats."""
