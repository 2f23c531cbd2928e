"""Import and export of runs in the formats of other systems."""
