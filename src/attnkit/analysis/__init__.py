"""Analysis of trained runs: attention maps, comparisons, embeddings, verification."""
