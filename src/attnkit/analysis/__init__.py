"""What is done with trained runs to understand them: attention maps, comparisons, vectors of lines, verification."""
