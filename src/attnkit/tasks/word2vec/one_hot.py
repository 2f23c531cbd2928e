"""Comparison of one-hot and trained vectors, as in the lecture notes (2.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from attnkit.errors import UsageError
from attnkit.io.plain_data import PlainResult
from attnkit.tasks.word2vec.vectors import Vectors, resolve_words


@dataclass(frozen=True)
class OneHotPair:
    """Similarity of two words as one-hot vectors and as trained vectors."""

    words: tuple[str, str]
    one_hot_dot: int  #: Σ_k x_k y_k of the one-hot vectors; 0 for different words
    dot: float
    cosine: float


@dataclass(frozen=True)
class OneHot(PlainResult):
    """Comparison of the one-hot and trained vectors of some words."""

    vocab_size: int  #: dimension of a one-hot vector
    dim: int  #: dimension of a trained vector
    places: dict[str, int]  #: word -> position of its 1, counted from 1
    pairs: list[OneHotPair]


def compare_one_hot(vectors: Vectors, words: Sequence[str]) -> OneHot:
    """Compare words pairwise; raise ``UsageError`` for one, ``DataError`` if unknown."""
    found = list(dict.fromkeys(resolve_words(vectors, words)))
    if len(found) < 2:
        raise UsageError("at least two different words are required", help="attnkit word2vec one-hot motel hotel RUN")
    places = {word: vectors.key_to_index[word] for word in found}
    pairs = []
    for one, other in combinations(found, 2):
        x, y = (np.asarray(vectors[word], np.float64) for word in (one, other))
        dot, lengths = float(x @ y), float(np.linalg.norm(x) * np.linalg.norm(y))
        cosine = dot / lengths if lengths else 0.0
        # Σ_k [k = i][k = j] is 1 if i = j, else 0; no one-hot vectors need to be built.
        pairs.append(OneHotPair((one, other), int(places[one] == places[other]), dot, cosine))
    counted = {word: place + 1 for word, place in places.items()}
    return OneHot(len(vectors.index_to_key), vectors.vector_size, counted, pairs)


def abbreviate_one_hot(place: int, vocab_size: int) -> str:
    """Abbreviate the one-hot vector of a 1-based place: ``[0 0 … 0 1 0 … 0 0]``."""
    if vocab_size <= 20:
        return "[" + " ".join("1" if k == place else "0" for k in range(1, vocab_size + 1)) + "]"
    kept = [k for k in range(1, vocab_size + 1) if k <= 2 or k > vocab_size - 2 or abs(k - place) <= 1]
    parts = [f"{'… ' if i and k > kept[i - 1] + 1 else ''}{int(k == place)}" for i, k in enumerate(kept)]
    return "[" + " ".join(parts) + "]"
