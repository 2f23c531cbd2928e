"""IBM model 1: word links and translation lexicons."""
