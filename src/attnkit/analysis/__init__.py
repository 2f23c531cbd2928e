"""Analysis of trained runs: attention maps, comparisons, vectors of lines, verification."""
