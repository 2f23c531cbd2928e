"""The commands of ``attnkit word2vec``. Imports nothing, so that help stays quick."""

WORD2VEC: dict[str, tuple[str, str]] = {
    "train": ("word2vec.train", "Train vectors: skip-gram, CBOW, GloVe, subwords."),
    "similar": ("word2vec.similar", "Nearest neighbours of words."),
    "analogy": ("word2vec.analogy", "What is to king as woman is to man."),
    "odd-one": ("word2vec.odd_one", "The word that does not fit."),
    "distance": ("word2vec.distance", "Cosine and distance of two words."),
    "evaluate": ("word2vec.evaluate", "Score on word-similarity and analogy files."),
    "cluster": ("word2vec.cluster", "Sort the words into classes (k-means)."),
    "phrases": ("word2vec.phrases", "Join words that belong together: new_york."),
    "convert": ("word2vec.convert", "Write vectors in another format."),
    "project": ("word2vec.project", "Draw the vectors on a page with search."),
    "one-hot": ("word2vec.one_hot", "What one-hot vectors cannot say."),
    "compare-context": ("word2vec.compare_context", "One word in two sentences."),
}
"""Command -> (module in attnkit.cli that holds ``command``, the line shown in the list)."""
