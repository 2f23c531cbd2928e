"""Word vectors in the files of other systems: words and rows of numbers, mapped where the format allows it."""
