"""Analysis of trained runs: attention maps, comparisons, line embeddings, verification."""
