"""Names to arrays and dictionaries of other systems."""
