"""Word vector formats of other systems, memory-mapped if the format allows it."""
