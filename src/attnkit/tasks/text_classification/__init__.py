"""Document classification with hierarchical attention networks."""
