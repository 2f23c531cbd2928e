"""Word alignment with IBM Model 1: links and translation lexicons."""
