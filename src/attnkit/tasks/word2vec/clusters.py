"""Classes of words: k-means on the unit sphere (Dhillon and Modha 2001), begun as k-means++ (Arthur and Vassilvitskii
2007). The same seed gives the same classes.

Letters: V words, K classes, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnkit.formats.word_vectors.table import Floats
from attnkit.tasks.word2vec.search import Index, Longs

_BLOCK = 1 << 13  # words at a time
_SAMPLE = 64
"""Words for each class, from which the first centres are drawn."""


@dataclass(frozen=True)
class Classes:
    """Which class each word is in."""

    labels: Longs
    """(V,) from 0 on; class 0 has the most frequent word, and so on as they first occur."""
    centres: Floats
    """(K, D), of length 1."""
    nearness: Floats
    """(V,) cosine of each word with the centre of its class."""
    iterations: int
    converged: bool


def cluster(index: Index, n_words: int, k: int, *, iterations: int = 50, seed: int = 1) -> Classes:
    """Sort the first ``n_words`` rows into ``k`` classes. Raises ``DataError`` for a row that is not finite."""
    assert 0 < k <= n_words
    random = np.random.default_rng(seed)
    centres = _begin(index, n_words, k, random)
    labels = np.full(n_words, -1, np.int64)
    for done in range(1, iterations + 1):
        before = labels.copy()
        sums = np.zeros((k, centres.shape[1]))
        nearness = np.empty(n_words, np.float32)
        for span, unit in _blocks(index, n_words):
            cosines = unit @ centres.T
            labels[span] = cosines.argmax(1)
            nearness[span] = cosines.max(1)
            _add(sums, labels[span], unit)
        converged = bool((labels == before).all())
        if converged or done == iterations:
            break
        centres = _unit(_mended(sums, labels, nearness, index))
    return _in_order(Classes(labels, centres, nearness, done, converged))


def _blocks(index: Index, n_words: int) -> Iterator[tuple[slice, Floats]]:
    for start in range(0, n_words, _BLOCK):
        span = slice(start, min(start + _BLOCK, n_words))
        yield span, index.unit(np.arange(span.start, span.stop))


def _begin(index: Index, n_words: int, k: int, random: np.random.Generator) -> Floats:
    """Draw centres: each word as likely as its squared distance to the nearest one so far (1 - cosine, doubled)."""
    chosen = np.sort(random.choice(n_words, min(n_words, _SAMPLE * k), replace=False))
    unit = index.unit(chosen)
    centres = np.empty((k, unit.shape[1]), np.float32)
    centres[0] = unit[random.integers(len(unit))]
    distance = np.full(len(unit), np.inf)
    for i in range(1, k):
        distance = np.minimum(distance, np.maximum(0, 1 - unit @ centres[i - 1]).astype(np.float64))
        total = distance.sum()
        centres[i] = unit[random.choice(len(unit), p=distance / total) if total > 0 else random.integers(len(unit))]
    return centres


def _add(sums: NDArray[np.float64], labels: Longs, unit: Floats) -> None:
    """Add rows to the sums of their classes."""
    order = np.argsort(labels, kind="stable")
    first = np.flatnonzero(np.diff(labels[order], prepend=-1))
    sums[labels[order][first]] += np.add.reduceat(unit[order], first, dtype=np.float64)


def _mended(sums: NDArray[np.float64], labels: Longs, nearness: Floats, index: Index) -> NDArray[np.float64]:
    """Return sums in which an empty class has the word that is farthest from its centre, another for each."""
    empty = np.flatnonzero(np.bincount(labels, minlength=len(sums)) == 0)
    if len(empty):
        sums[empty] = index.unit(np.argsort(nearness, kind="stable")[: len(empty)])
    return sums


def _unit(sums: NDArray[np.float64]) -> Floats:
    norms = np.sqrt((sums * sums).sum(1, keepdims=True))
    return (sums / np.where(norms > 0, norms, 1)).astype(np.float32)


def _in_order(found: Classes) -> Classes:
    """Return the classes numbered as they first occur, empty ones last."""
    present, first = np.unique(found.labels, return_index=True)
    order = present[np.argsort(first)]
    order = np.concatenate([order, np.setdiff1d(np.arange(len(found.centres)), order)])
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return Classes(number[found.labels], found.centres[order], found.nearness, found.iterations, found.converged)
