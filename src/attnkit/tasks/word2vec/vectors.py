"""Word vectors: loading, saving, lookup and cosine queries. Torch-free.

Letters: V words, D dimensions of a vector, Q queries.
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

from attnkit.config.arguments import Count, CountOrZero, checked
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
from attnkit.tasks.word2vec.vector_files import open_described, write_vectors

if TYPE_CHECKING:
    from typing_extensions import Self

    from attnkit.engine.run_summary import RunSummary

Longs = NDArray[np.int64]


def _lengths(rows: Floats, numbers: Longs, name: str) -> Floats:
    """Return row norms; raise ``DataError`` for the first row that is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    odd = np.flatnonzero(~np.isfinite(found) | (found == 0))
    if len(odd):  # float32 squares may overflow or underflow where the numbers do not
        wide = rows[odd].astype(np.float64)
        found[odd] = np.sqrt((wide * wide).sum(1))
        bad = np.flatnonzero(~np.isfinite(found))
        if len(bad):
            raise not_finite(name, int(numbers[bad[0]]))
    return found


def unit_rows(rows: Floats, numbers: Longs, name: str) -> Floats:
    """Normalize rows to unit length; zero rows stay zero. Errors as in ``_lengths``."""
    norms = _lengths(rows, numbers, name)
    return (rows / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32, copy=False)


def unit_vector(vector: Floats) -> Floats:
    """Normalize a vector (D,) to unit length; a zero vector stays zero."""
    length = float(np.sqrt(np.square(vector, dtype=np.float64).sum()))
    return (vector / length if length else vector).astype(np.float32)


def best(scores: Floats, n: int, excluded: list[int]) -> Longs:
    """Return the indices of the ``n`` highest scores, best first; ties by lower index."""
    scores = scores.copy()
    scores[[place for place in excluded if place < len(scores)]] = -np.inf
    n = min(n, int(np.isfinite(scores).sum()))
    if n < 1:
        return np.empty(0, np.int64)
    least = np.partition(scores, len(scores) - n)[len(scores) - n]
    places = np.flatnonzero(scores >= least)
    return places[np.lexsort((places, -scores[places]))][:n]


def suggest(word: str, words: Sequence[str], n: int = 3) -> list[str]:
    """Return up to ``n`` words spelled like an unknown word, the most similar first."""
    short = word[:64]
    frequent = words[:50_000]  # each comparison takes some microseconds
    # The same letters in another case or order.
    letters = sorted(short.casefold())
    same = [o for o in frequent if len(o) == len(short) and sorted(o.casefold()) == letters][:n]
    # A quick filter: similar length, and more than half of the distinct letters in common.
    signs = set(letters)
    close = [o for o in frequent if abs(len(o) - len(short)) <= 2 and len(signs & set(o)) * 2 > len(signs)]
    found = difflib.get_close_matches(short, close, n=n, cutoff=0.7)
    return list(dict.fromkeys([*same, *found]))[:n]


Key: TypeAlias = str | int | Floats  #: a word, a row number, or a vector
Weighted: TypeAlias = Key | tuple[Key, float]
Question: TypeAlias = Weighted | Iterable[Weighted] | None
Keys: TypeAlias = Key | Iterable[Key] | None
Neighbours: TypeAlias = list[tuple[str, float]]
_MANY = 1_000_000  #: number of words from which a few linear searches are faster than building a dictionary
_LOOKS = 8
_SMALL = 1e-6  # as in word2vec.c and gensim


class UnknownWordError(DataError, KeyError):
    """Error for a word without a vector; also a ``KeyError``, as for mappings."""

    def __str__(self) -> str:
        return self.what


class Vectors:
    """Words and their vectors, in memory or mapped, with similarity queries.

    Words are looked up by exact spelling. An out-of-vocabulary word gets its n-gram vector if ``unseen`` is set.

    >>> vectors = Vectors(["king", "queen", "apple"], np.array([[1, 0.2], [1, 0.3], [0, 1]], np.float32))
    >>> vectors.most_similar("king", topn=1)[0][0]
    'queen'
    """

    def __init__(self, words: Sequence[str], vectors: Rows, *, counts: Any = None, name: str = "vectors",
                 unseen: Unseen | None = None) -> None:  # fmt: skip
        if len(words) != len(vectors):
            raise DataError(f"there are {len(words):,} words for {len(vectors):,} vectors", where=name)
        self.index_to_key = list(words)
        self.vectors = vectors  #: (V, D), an array or an object with the same row indexing
        self.vector_size = int(vectors.shape[1])  #: D
        self.counts = None if counts is None else np.asarray(counts, np.int64)  #: (V,) occurrences, if known
        self.name = name  #: source of the vectors, for messages
        self.unseen = unseen
        self.summary: RunSummary | None = None  #: description of the run; None: vectors of a file or from memory
        self.warnings: tuple[str, ...] = ()  #: reasons why newer checkpoints were skipped
        self._norms = np.full(len(words), np.nan, np.float32)  # computed when a block is first read
        self._looks = 0
        if len(words) < _MANY:
            self.key_to_index  # noqa: B018 - finds duplicate words

    @classmethod
    @checked
    def load(cls, path: str | Path, mmap: bool = True, *, checkpoint: str | None = None) -> Self:
        """Load a run, a checkpoint, or a file of any ``Format``, plain or compressed.

        Args:
            path: output of ``attnkit word2vec train`` or ``convert``, gensim, fastText, GloVe or word2vec.
            mmap: keep rows in the file if its format allows this (safetensors, npy, binary); False reads them.
            checkpoint: name of a checkpoint of a run: best, last, averaged or step-N.

        Raises:
            DataError: the file is damaged; the message names the line.
            RunError: the run is damaged or has no vectors.
        """
        opened, summary = open_described(Path(path), checkpoint)
        table = replace(opened, name=str(path))
        rows = table.rows if mmap else np.concatenate([block for _, block in finite_blocks(table)])
        found = cls(table.words, rows, counts=table.counts, name=table.name, unseen=table.unseen)
        found.warnings, found.summary = table.warnings, summary
        return found

    def __repr__(self) -> str:
        return f"Vectors({self.summary or f'{self.name}: {len(self):,} words, vectors of {self.vector_size}'})"

    @checked
    def save(self, path: str | Path, format: Format | None = None) -> None:
        """Write all vectors; by default the suffix of ``path`` determines the format."""
        write_vectors(Path(path), self.table(), format or format_of(Path(path)))

    def table(self, top: int | None = None) -> VectorTable:
        """Return all words and rows, or the first ``top``, as a table for the writers."""
        counts = self.counts if self.counts is None else self.counts[:top]
        rows = self.vectors if top is None or top >= len(self) else self.vectors[:top]
        return VectorTable(self.index_to_key[:top], rows, counts, self.name)

    # --- words and their vectors

    @cached_property
    def key_to_index(self) -> dict[str, int]:
        """Mapping from word to row. Raises ``DataError`` for a duplicate word."""
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
        """Return the row of a word, or ``default`` if it has no row."""
        if "key_to_index" not in self.__dict__ and self._looks < _LOOKS:
            self._looks += 1
            try:
                return self.index_to_key.index(word)
            except ValueError:
                return default
        return self.key_to_index.get(word, default)

    def get_vector(self, word: Key, norm: bool = False) -> Floats:
        """Return a vector (D,), unit length if ``norm``; raise ``DataError`` if unknown."""
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
        """Return the error for an unknown word, with suggestions of similar spelling."""
        found = suggest(word, self.index_to_key)
        help = f"similar spellings: {', '.join(found)}" if found else "the spelling must match exactly"
        return UnknownWordError(f"no vector for {word[:60]!r}", where=self.name, help=help)

    # --- cosines

    def unit(self, numbers: Longs) -> Floats:
        """Return unit rows (n, D), zero rows unchanged; raise ``DataError`` if not finite."""
        return unit_rows(rows_at(self.vectors, numbers), numbers, self.name)

    def cosines(self, queries: Floats, stop: int | None = None) -> Floats:
        """Return cosines (Q, stop) of unit queries (Q, D) with the first ``stop`` rows.

        The cosine with a zero row is 0. Raises ``DataError`` if a row is not finite.
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

    @checked
    def similarity(self, a: Key, b: Key) -> float:
        """Return the cosine similarity of two words."""
        return float(self._unit([a])[0] @ self._unit([b])[0])

    @checked
    def distance(self, a: Key, b: Key) -> float:
        """Return the cosine distance of two words, 1 - cosine similarity."""
        return 1 - self.similarity(a, b)

    @checked
    def n_similarity(self, first: Sequence[Key], second: Sequence[Key]) -> float:
        """Return the cosine similarity of the mean vectors of two groups of words."""
        means = [unit_vector(np.mean([self.get_vector(word) for word in group], 0)) for group in (first, second)]
        return float(means[0] @ means[1])

    @checked
    def most_similar(
        self,
        positive: Question = None,
        negative: Question = None,
        topn: CountOrZero = 10,
        restrict_vocab: Count | None = None,
    ) -> Neighbours:
        """Return the words nearest to a sum of unit vectors, with cosines (3CosAdd).

        Args:
            positive: word or vector, or several, each optionally with a weight: ``("king", 0.5)``.
            negative: words or vectors to subtract.
            topn: maximum number of results; words of the query are excluded.
            restrict_vocab: search only this many first words, the most frequent of a trained file.
        """
        terms = [(*_weighted(item), 1.0) for item in _listed(positive)]
        terms += [(*_weighted(item), -1.0) for item in _listed(negative)]
        if not terms:
            raise UsageError("no words given", where=self.name, help="give at least one word of the vocabulary")
        signs = np.array([weight * sign for _, weight, sign in terms], np.float32)
        query = unit_vector(signs @ self._unit([key for key, _, _ in terms]))
        scores = self.cosines(query[None], restrict_vocab)[0]
        return self._named(scores, topn, [key for key, _, _ in terms])

    @checked
    def most_similar_cosmul(
        self, positive: Keys = None, negative: Keys = None, topn: CountOrZero = 10, restrict_vocab: Count | None = None
    ) -> Neighbours:
        """Return the words with the highest 3CosMul scores.

        The product of ``positive`` over that of ``negative`` cosines, all shifted to [0, 1]: Levy and Goldberg 2014,
        "Linguistic Regularities in Sparse and Explicit Word Representations", equation 4.
        """
        good, bad = _listed(positive), _listed(negative)
        if not good:
            raise UsageError("no words given", where=self.name, help="give at least one word of the vocabulary")
        cosines = (1 + self.cosines(self._unit([*good, *bad]), restrict_vocab)) / 2
        scores = cosines[: len(good)].prod(0) / (cosines[len(good) :].prod(0) + np.float32(_SMALL))
        return self._named(scores, topn, [*good, *bad])

    @checked
    def rank_by_centrality(self, words: Sequence[str]) -> list[tuple[float, str]]:
        """Return (cosine with the mean vector, word) pairs, the most central word first."""
        if not words:
            raise UsageError("no words given", where=self.name, help="give at least one word of the vocabulary")
        rows = self._unit(list(words))
        found = (rows @ unit_vector(rows.mean(0))).tolist()
        return sorted(zip(found, words, strict=True), reverse=True)

    @checked
    def doesnt_match(self, words: Sequence[str]) -> str:
        """Return the word farthest from the mean vector."""
        return self.rank_by_centrality(words)[-1][1]

    def _unit(self, keys: Sequence[Key]) -> Floats:
        rows = np.stack([self.get_vector(key) for key in keys]).astype(np.float32)
        return unit_rows(rows, np.array([self._row(key) for key in keys], np.int64), self.name)

    def _named(self, scores: Floats, topn: int, asked: Sequence[Key]) -> Neighbours:
        """Return the words with the best scores, excluding the words of the query."""
        known = [row for key in asked if (row := self._row(key)) >= 0]
        return [(self.index_to_key[row], float(scores[row])) for row in best(scores, topn, known)]

    def _row(self, key: Key) -> int:
        """Return the row of a key, -1 if it has no row."""
        if isinstance(key, str):
            return int(self.get_index(key, -1) or 0)
        return -1 if isinstance(key, np.ndarray) else int(key)


def resolve_words(vectors: Vectors, words: Sequence[str]) -> list[str]:
    """Return words as spelled in the vocabulary, or raise ``UnknownWordError``."""
    found = []
    for word in words:
        form = next((form for form in (word, word.lower()) if vectors.get_index(form) is not None), None)
        if form is None:
            raise vectors.unknown(word)
        found.append(form)
    return found


def _listed(keys: Any) -> list[Any]:
    """Return keys as a list: one item for a single key, an empty list for None."""
    if keys is None:
        return []
    alone = isinstance(keys, str | int | np.integer | tuple) or (isinstance(keys, np.ndarray) and keys.ndim == 1)
    if isinstance(keys, tuple) and (not keys or not isinstance(keys[-1], float | int)):
        return list(keys)
    return [keys] if alone else list(keys)


def _weighted(item: Any) -> tuple[Key, float]:
    return (item[0], float(item[1])) if isinstance(item, tuple) else (item, 1.0)
