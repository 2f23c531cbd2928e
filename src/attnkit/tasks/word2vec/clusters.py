"""Classes of words: k-means of scikit-learn on vectors of length 1. The same seed gives the same classes.

Letters: V words, K classes, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from attnkit.errors import UsageError
from attnkit.formats.word_vectors.table import Floats
from attnkit.tasks.word2vec.search import Index, Longs


@dataclass(frozen=True)
class Classes:
    """The class of each word."""

    labels: Longs
    """(V,) from 0 on; class 0 has the most frequent word, and so on as they first occur."""
    centres: Floats
    """(K, D), of length 1."""
    nearness: Floats
    """(V,) cosine of each word with the centre of its class."""
    iterations: int
    converged: bool


def check_sklearn(what: str) -> None:
    """Raise ``UsageError`` unless scikit-learn is installed, which ``what`` needs."""
    if find_spec("sklearn") is None:
        raise UsageError(f"{what} needs scikit-learn", help='pip install "attnkit[plot]"')


def cluster(index: Index, n_words: int, k: int, *, iterations: int = 50, seed: int = 1) -> Classes:
    """Sort the first ``n_words`` rows into ``k`` classes. Raises ``DataError`` for a row that is not finite."""
    check_sklearn("clustering")
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    rows = index.unit(np.arange(n_words))  # (V, D)
    # One thread: several add in the order in which they happen to end.
    with threadpool_limits(1):
        found = KMeans(k, max_iter=iterations, n_init=1, random_state=seed, tol=0.0).fit(rows)
    # Classes are numbered as they first occur, empty ones last.
    present, first = np.unique(found.labels_, return_index=True)
    order = present[np.argsort(first)]
    order = np.concatenate([order, np.setdiff1d(np.arange(k), order)])
    number = np.empty(k, np.int64)
    number[order] = np.arange(k)
    labels = number[found.labels_]
    centres = found.cluster_centers_[order].astype(np.float32)
    centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-12)
    nearness = np.einsum("vd,vd->v", rows, centres[labels])
    return Classes(labels, centres, nearness, int(found.n_iter_), bool(found.n_iter_ < iterations))
