"""Words and their vectors: loaded, saved, looked up and queried by their cosines. Torch-free.

Letters: V words, D numbers of a vector, Q queries.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError, UsageError
from attnkit.formats.word_vectors.table import (
    Floats,
    Format,
    Rows,
    Unseen,
    VectorTable,
    blocks,
    finite_blocks,
    finite_rows_at,
    format_of,
    not_finite,
    rows_at,
)
from attnkit.tasks.word2vec.vector_files import open_vectors, write_vectors

if TYPE_CHECKING:
    from typing_extensions import Self

Longs = NDArray[np.int64]


def _lengths(rows: Floats, numbers: Longs, name: str) -> Floats:
    """Return the lengths of rows. Raises ``DataError`` naming the first of these numbers whose row is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    odd = np.flatnonzero(~np.isfinite(found) | (found == 0))
    if len(odd):  # squares of 32 bits may be too large or too small where the numbers are neither
        wide = rows[odd].astype(np.float64)
        found[odd] = np.sqrt((wide * wide).sum(1))
        bad = np.flatnonzero(~np.isfinite(found))
        if len(bad):
            raise not_finite(name, int(numbers[bad[0]]))
    return found


def unit_rows(rows: Floats, numbers: Longs, name: str) -> Floats:
    """Normalize rows to unit length; zero rows stay zero. Raises ``DataError`` as ``_lengths``."""
    norms = _lengths(rows, numbers, name)
    return (rows / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32, copy=False)


def unit_vector(vector: Floats) -> Floats:
    """Return a vector (D,) of the same direction and length 1; zeros stay."""
    length = float(np.sqrt(np.square(vector, dtype=np.float64).sum()))
    return (vector / length if length else vector).astype(np.float32)


def best(scores: Floats, n: int, excluded: list[int]) -> Longs:
    """Return the places of the ``n`` highest scores, the highest first, the first place among equals."""
    scores = scores.copy()
    scores[[place for place in excluded if place < len(scores)]] = -np.inf
    n = min(n, int(np.isfinite(scores).sum()))
    if n < 1:
        return np.empty(0, np.int64)
    least = np.partition(scores, len(scores) - n)[len(scores) - n]
    places = np.flatnonzero(scores >= least)
    return places[np.lexsort((places, -scores[places]))][:n]


def suggest(word: str, words: Sequence[str], n: int = 3) -> list[str]:
    """Return up to ``n`` words of a list that are spelt like one that is not in it, the nearest first."""
    short = word[:64]
    frequent = words[:50_000]  # comparing takes some microseconds each
    # Another case, or letters that have changed places.
    letters = sorted(short.casefold())
    same = [o for o in frequent if len(o) == len(short) and sorted(o.casefold()) == letters][:n]
    # Two signs in common are the least that a near word has, and quick to see.
    signs = set(letters)
    close = [o for o in frequent if abs(len(o) - len(short)) <= 2 and len(signs & set(o)) * 2 > len(signs)]
    found = difflib.get_close_matches(short, close, n=n, cutoff=0.7)
    return list(dict.fromkeys([*same, *found]))[:n]


Key: TypeAlias = "str | int | Floats"  #: a word, the number of one, or a vector itself
Weighted: TypeAlias = "Key | tuple[Key, float]"
Question: TypeAlias = "Weighted | Iterable[Weighted] | None"
Keys: TypeAlias = "Key | Iterable[Key] | None"
Neighbours: TypeAlias = list[tuple[str, float]]
_MANY = 1_000_000  #: words of which a dictionary takes longer than looking for a few of them
_LOOKS = 8
_SMALL = 1e-6  # as word2vec.c and gensim have it


class UnknownWordError(DataError, KeyError):
    """A word without a vector; a ``KeyError`` too, as of any other mapping."""

    def __str__(self) -> str:
        return self.what


class Vectors:
    """Words in the order of their rows, the rows, which may be mapped from a file, and what can be asked of them.

    A word is looked up as it is spelt. An out-of-vocabulary word gets its n-gram vector if ``unseen`` is set.

    >>> vectors = Vectors(["king", "queen", "apple"], np.array([[1, 0.2], [1, 0.3], [0, 1]], np.float32))
    >>> vectors.most_similar("king", topn=1)[0][0]
    'queen'
    """

    def __init__(self, words: Sequence[str], vectors: Rows, *, counts: Any = None, name: str = "vectors",
                 unseen: Unseen | None = None) -> None:  # fmt: skip
        if len(words) != len(vectors):
            raise DataError(f"there are {len(words):,} words for {len(vectors):,} vectors", where=name)
        self.index_to_key = list(words)
        self.vectors = vectors  #: (V, D): an array, or what is indexed as one and gives arrays
        self.vector_size = int(vectors.shape[1])  #: D
        self.counts = None if counts is None else np.asarray(counts, np.int64)  #: (V,) occurrences, if known
        self.name = name  #: source of the vectors, for messages
        self.unseen = unseen
        self.warnings: tuple[str, ...] = ()  #: problems of newer checkpoints that were skipped
        self._norms = np.full(len(words), np.nan, np.float32)  # computed the first time that a block is read
        self._looks = 0
        if len(words) < _MANY:
            self.key_to_index  # noqa: B018 - finds words that stand twice

    @classmethod
    def load(cls, path: str | Path, mmap: bool = True, *, checkpoint: str | None = None) -> Self:
        """Load a run, a checkpoint, or a file of any format (see ``Format``); packed files (.gz …) too.

        Args:
            path: what ``attnkit word2vec train`` or ``convert`` made, gensim, fastText, GloVe or word2vec.
            mmap: leave rows in their file where the format allows it (safetensors, npy, binary); false reads them.
            checkpoint: of a run: best, last, averaged or step-N.

        Raises:
            DataError: a broken file, with its line.
            RunError: a run without vectors, or a damaged one.
        """
        table = replace(open_vectors(Path(path), checkpoint), name=str(path))
        rows = table.rows if mmap else np.concatenate([block for _, block in finite_blocks(table)])
        found = cls(table.words, rows, counts=table.counts, name=table.name, unseen=table.unseen)
        found.warnings = table.warnings
        return found

    def save(self, path: str | Path, format: Format | None = None) -> None:
        """Write the vectors of all words; the ending of the name chooses the format unless it is given."""
        write_vectors(Path(path), self.table(), format or format_of(Path(path)))

    def table(self, top: int | None = None) -> VectorTable:
        """Return words and rows as the writers take them: all, or the first ``top``."""
        counts = self.counts if self.counts is None else self.counts[:top]
        rows = self.vectors if top is None or top >= len(self) else self.vectors[:top]
        return VectorTable(self.index_to_key[:top], rows, counts, self.name)

    # --- words and their vectors

    @cached_property
    def key_to_index(self) -> dict[str, int]:
        """Word -> row. Raises ``DataError`` for a duplicate word."""
        words = self.index_to_key
        found = dict(zip(words, range(len(words)), strict=True))
        if len(found) != len(words):
            second, word = next((i, word) for i, word in enumerate(words) if found[word] != i)
            where = f"{self.name}, words {second + 1:,} and {found[word] + 1:,}"
            raise DataError(f"duplicate word {word[:60]!r}", where=where, help="remove one of the two")
        return found

    def __len__(self) -> int:
        return len(self.index_to_key)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.get_index(word, None) is not None

    def __getitem__(self, key: Key | Sequence[str]) -> Floats:
        if isinstance(key, str | int | np.integer):
            return self.get_vector(key)
        return np.stack([self.get_vector(word) for word in key])

    def get_index(self, word: str, default: int | None = None) -> int | None:
        """Return the row of a word, ``default`` where it has none."""
        if "key_to_index" not in self.__dict__ and self._looks < _LOOKS:
            self._looks += 1
            try:
                return self.index_to_key.index(word)
            except ValueError:
                return default
        return self.key_to_index.get(word, default)

    def get_vector(self, word: Key, norm: bool = False) -> Floats:
        """Return the vector (D,) of a word, or of its n-grams; of length 1 with ``norm``. Raises ``DataError``."""
        row = self.get_index(word) if isinstance(word, str) else word
        if row is None:
            assert isinstance(word, str)
            if self.unseen is None or (vector := self.unseen(word)) is None:
                raise self.unknown(word)
        elif isinstance(row, np.ndarray):
            vector = np.array(row, np.float32)
        else:
            vector = finite_rows_at(self.vectors, int(row), self.name)
        return unit_vector(vector) if norm else vector

    def unknown(self, word: str) -> UnknownWordError:
        """Return the error for a word that has no vector, with words that are spelt like it."""
        found = suggest(word, self.index_to_key)
        help = f"near spellings: {', '.join(found)}" if found else "the spelling must match exactly"
        return UnknownWordError(f"no vector for {word[:60]!r}", where=self.name, help=help)

    # --- cosines

    def unit(self, numbers: Longs) -> Floats:
        """Return some rows (n, D) with length 1; zeros stay. Raises ``DataError`` for one that is not finite."""
        return unit_rows(rows_at(self.vectors, numbers), numbers, self.name)

    def cosines(self, queries: Floats, stop: int | None = None) -> Floats:
        """Return (Q, stop) cosines of queries (Q, D), of length 1, with the first rows; 0 with a row of zeros.

        Raises ``DataError``: a row is not finite.
        """
        stop = len(self) if stop is None else min(stop, len(self))
        found = np.empty((len(queries), stop), np.float32)
        for start, block in blocks(self.vectors):
            if start >= stop:
                break
            block = block[: stop - start]
            norms = self._norms[start : start + len(block)]
            if np.isnan(norms).any():
                norms[:] = _lengths(block, np.arange(start, start + len(block)), self.name)
            np.divide(queries @ block.T, np.where(norms > 0, norms, 1), out=found[:, start : start + len(block)])
        return found

    def similarity(self, a: Key, b: Key) -> float:
        """Return the cosine of two words."""
        return float(self._unit([a])[0] @ self._unit([b])[0])

    def distance(self, a: Key, b: Key) -> float:
        """Return 1 - cosine."""
        return 1 - self.similarity(a, b)

    def n_similarity(self, first: Sequence[Key], second: Sequence[Key]) -> float:
        """Return the cosine of the mean vectors of two groups of words."""
        means = [unit_vector(np.mean([self.get_vector(word) for word in group], 0)) for group in (first, second)]
        return float(means[0] @ means[1])

    def most_similar(
        self, positive: Question = None, negative: Question = None, topn: int = 10, restrict_vocab: int | None = None
    ) -> Neighbours:
        """Return the nearest words to the sum of some less others, each of length 1, with their cosines (3CosAdd).

        Args:
            positive: a word, a vector, or several, each perhaps with a weight: ``("king", 0.5)``.
            negative: what is taken off.
            topn: how many; the words of the question are never among them.
            restrict_vocab: look at the first so many words alone, the most frequent of a trained file.
        """
        terms = [(*_weighted(item), 1.0) for item in _listed(positive)]
        terms += [(*_weighted(item), -1.0) for item in _listed(negative)]
        if not terms:
            raise UsageError("no words given")
        signs = np.array([weight * sign for _, weight, sign in terms], np.float32)
        query = unit_vector(signs @ self._unit([key for key, _, _ in terms]))
        scores = self.cosines(query[None], restrict_vocab)[0]
        return self._named(scores, topn, [key for key, _, _ in terms])

    def most_similar_cosmul(
        self, positive: Keys = None, negative: Keys = None, topn: int = 10, restrict_vocab: int | None = None
    ) -> Neighbours:
        """Return the words with the largest ratio of ``positive`` to ``negative`` cosine products, shifted to 0..1.

        3CosMul: Levy and Goldberg 2014, "Linguistic Regularities in Sparse and Explicit Word Representations",
        equation 4.
        """
        good, bad = _listed(positive), _listed(negative)
        if not good:
            raise UsageError("no words given")
        cosines = (1 + self.cosines(self._unit([*good, *bad]), restrict_vocab)) / 2
        scores = cosines[: len(good)].prod(0) / (cosines[len(good) :].prod(0) + np.float32(_SMALL))
        return self._named(scores, topn, [*good, *bad])

    def rank_by_centrality(self, words: Sequence[str]) -> list[tuple[float, str]]:
        """Return the cosine of each word with the mean of all, the most central first."""
        if not words:
            raise UsageError("no words given")
        rows = self._unit(list(words))
        found = (rows @ unit_vector(rows.mean(0))).tolist()
        return sorted(zip(found, words, strict=True), reverse=True)

    def doesnt_match(self, words: Sequence[str]) -> str:
        """Return the word farthest from the mean vector."""
        return self.rank_by_centrality(words)[-1][1]

    def _unit(self, keys: Sequence[Key]) -> Floats:
        rows = np.stack([self.get_vector(key) for key in keys]).astype(np.float32)
        return unit_rows(rows, np.array([self._row(key) for key in keys], np.int64), self.name)

    def _named(self, scores: Floats, topn: int, asked: Sequence[Key]) -> Neighbours:
        """Return the words of the best scores, without those of the question."""
        known = [row for key in asked if (row := self._row(key)) >= 0]
        return [(self.index_to_key[row], float(scores[row])) for row in best(scores, topn, known)]

    def _row(self, key: Key) -> int:
        """Return the row of a key, -1 for one that has none."""
        if isinstance(key, str):
            return int(self.get_index(key, -1) or 0)
        return -1 if isinstance(key, np.ndarray) else int(key)


def resolve_words(vectors: Vectors, words: Sequence[str]) -> list[str]:
    """Return words as the vocabulary has them. Raises ``UnknownWordError`` for one that it lacks."""
    found = []
    for word in words:
        form = next((form for form in (word, word.lower()) if vectors.get_index(form) is not None), None)
        if form is None:
            raise vectors.unknown(word)
        found.append(form)
    return found


def _listed(keys: Any) -> list[Any]:
    """Return several keys as they are, a single one as a list of it, None as none."""
    if keys is None:
        return []
    alone = isinstance(keys, str | int | np.integer | tuple) or (isinstance(keys, np.ndarray) and keys.ndim == 1)
    if isinstance(keys, tuple) and (not keys or not isinstance(keys[-1], float | int)):
        return list(keys)
    return [keys] if alone else list(keys)


def _weighted(item: Any) -> tuple[Key, float]:
    return (item[0], float(item[1])) if isinstance(item, tuple) else (item, 1.0)
