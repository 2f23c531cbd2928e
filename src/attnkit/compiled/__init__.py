"""Models in compiled loops: packed weights, working memory, searches and steps."""
