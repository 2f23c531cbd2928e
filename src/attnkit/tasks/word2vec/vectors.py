"""Words and their vectors: loaded, saved, looked up and queried. Torch-free."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from attnkit.errors import DataError, UsageError
from attnkit.formats.word_vectors.formats import Format, format_of
from attnkit.formats.word_vectors.table import Floats, Rows, VectorTable, finite_blocks, finite_rows_at
from attnkit.tasks.word2vec.search import Index, best, norms_of, scaled, unit_vector
from attnkit.tasks.word2vec.vector_files import LoadedVectors, Unseen, open_vectors, write_vectors

if TYPE_CHECKING:
    from typing_extensions import Self


_LOOKED_AT = 50_000
"""The most frequent words alone: comparing takes some microseconds each."""


def suggest(word: str, words: Sequence[str], n: int = 3) -> list[str]:
    """Return up to ``n`` words of a list that are spelt like one that is not in it, the nearest first."""
    short = word[:64]
    folded = short.casefold()
    frequent = words[:_LOOKED_AT]
    # Another case, or letters that have changed places.
    letters = sorted(folded)
    same = [o for o in frequent if len(o) == len(short) and sorted(o.casefold()) == letters][:n]
    # Two signs in common are the least that a near word has, and quick to see.
    signs = set(folded)
    close = [o for o in frequent if abs(len(o) - len(short)) <= 2 and len(signs & set(o)) * 2 > len(signs)]
    found = difflib.get_close_matches(short, close, n=n, cutoff=0.7)
    return list(dict.fromkeys([*same, *found]))[:n]


Key: TypeAlias = "str | int | Floats"
"""A word, the number of one, or a vector itself."""
_MANY = 1_000_000
"""Words of which a dictionary takes longer than looking for a few of them."""
_LOOKS = 8


class UnknownWordError(DataError, KeyError):
    """A word without a vector; a ``KeyError`` too, as of any other mapping."""

    def __str__(self) -> str:
        return self.what


class WordRows:
    """Words in the order of their rows, and the rows, which may be mapped from a file.

    A word is looked up as it is spelt. One that has no row gets the vector of its n-grams where ``unseen`` knows them.
    """

    def __init__(self, words: Sequence[str], vectors: Rows, *, counts: Any = None, name: str = "vectors",
                 unseen: Unseen | None = None) -> None:  # fmt: skip
        if len(words) != len(vectors):
            raise DataError(f"there are {len(words):,} words for {len(vectors):,} vectors", where=name)
        self.index_to_key = list(words)
        self.vectors = vectors
        """(V, D): an array, or what is indexed as one and gives arrays."""
        self.counts = None if counts is None else np.asarray(counts, np.int64)
        """(V,) how often each word occurs in the text, where that is known."""
        self.name = name
        """Where they come from, for messages."""
        self.unseen = unseen
        self.warnings: tuple[str, ...] = ()
        """What was wrong with newer checkpoints that were passed over."""
        self.index = Index(vectors, name)
        self._looks = 0
        if len(words) < _MANY:
            self.key_to_index  # noqa: B018 - finds words that stand twice

    @classmethod
    def load(cls, path: str | Path, mmap: bool = True, *, checkpoint: str | None = None) -> Self:
        """Load a run, a checkpoint, or a file of any format (see ``formats``); packed files (.gz …) too.

        Args:
            path: what ``attnkit word2vec train`` or ``convert`` made, gensim, fastText, GloVe or word2vec.
            mmap: leave rows in their file where the format allows it (safetensors, npy, binary); false reads them.
            checkpoint: of a run: best, last, averaged or step-N.

        Raises:
            DataError: a broken file, with its line.
            RunError: a run without vectors, or a damaged one.
        """
        return cls._of(open_vectors(Path(path), checkpoint), str(path), mmap)

    @classmethod
    def _of(cls, opened: LoadedVectors, name: str, mmap: bool) -> Self:
        table = replace(opened.table, name=name)
        rows = table.rows if mmap else np.concatenate([block for _, block in finite_blocks(table)])
        found = cls(table.words, rows, counts=table.counts, name=name, unseen=opened.unseen)
        found.warnings = opened.warnings
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

    @property
    def vector_size(self) -> int:
        """D, the numbers of a vector."""
        return int(self.vectors.shape[1])

    @cached_property
    def key_to_index(self) -> dict[str, int]:
        """Word -> its row. Raises ``DataError`` for a word that stands twice."""
        words = self.index_to_key
        found = dict(zip(words, range(len(words)), strict=True))
        if len(found) != len(words):
            second, word = next((i, word) for i, word in enumerate(words) if found[word] != i)
            where = f"{self.name}, words {second + 1:,} and {found[word] + 1:,}"
            raise DataError(f"the word {word[:60]!r} stands twice", where=where, help="leave one of the two out")
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
        """Return the vector (D,) of a word, of length 1 with ``norm``; of its n-grams where it has no row.

        Raises:
            UnknownWordError: it has neither.
            DataError: it is not finite.
        """
        row = self.get_index(word) if isinstance(word, str) else word
        if row is None:
            assert isinstance(word, str)
            vector = self.unseen(word) if self.unseen is not None else None
            if vector is None:
                raise self.unknown(word)
        else:
            vector = np.array(row, np.float32) if isinstance(row, np.ndarray) else self._row(int(row))
        return unit_vector(vector) if norm else vector

    def _row(self, number: int) -> Floats:
        return finite_rows_at(self.vectors, number, self.name)

    def unknown(self, word: str) -> UnknownWordError:
        """Return the error for a word that has no vector, with words that are spelt like it."""
        found = suggest(word, self.index_to_key)
        help = f"near spellings: {', '.join(found)}" if found else "words are looked up as they are spelt"
        return UnknownWordError(f"no vector of {word[:60]!r}", where=self.name, help=help)


def resolve_words(vectors: Vectors, words: Sequence[str]) -> list[str]:
    """Return words as the vocabulary has them. Raises ``UnknownWordError`` for one that it lacks."""
    found = []
    for word in words:
        forms = [form for form in (word, word.lower()) if vectors.get_index(form) is not None]
        if not forms:
            raise vectors.unknown(word)
        found.append(forms[0])
    return found


Weighted: TypeAlias = "Key | tuple[Key, float]"
Neighbours: TypeAlias = list[tuple[str, float]]
_SMALL = 1e-6  # as word2vec.c and gensim have it


class Vectors(WordRows):
    """Words and their vectors, with the questions that can be asked of them.

    >>> vectors = Vectors(["king", "queen", "apple"], np.array([[1, 0.2], [1, 0.3], [0, 1]], np.float32))
    >>> vectors.most_similar("king", topn=1)[0][0]
    'queen'
    """

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
        self,
        positive: Weighted | Iterable[Weighted] | None = None,
        negative: Weighted | Iterable[Weighted] | None = None,
        topn: int = 10,
        restrict_vocab: int | None = None,
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
            raise UsageError("no word to look for")
        signs = np.array([weight * sign for _, weight, sign in terms], np.float32)
        query = unit_vector(signs @ self._unit([key for key, _, _ in terms]))
        scores = self.index.cosines(query[None], restrict_vocab)[0]
        return self._named(scores, topn, [key for key, _, _ in terms])

    def most_similar_cosmul(
        self,
        positive: Key | Iterable[Key] | None = None,
        negative: Key | Iterable[Key] | None = None,
        topn: int = 10,
        restrict_vocab: int | None = None,
    ) -> Neighbours:
        """Return the words with the largest product of cosines, shifted to 0..1, over those of ``negative``.

        3CosMul: Levy and Goldberg 2014, "Linguistic Regularities in Sparse and Explicit Word Representations",
        equation 4.
        """
        good, bad = _listed(positive), _listed(negative)
        if not good:
            raise UsageError("no word to look for")
        cosines = (1 + self.index.cosines(self._unit([*good, *bad]), restrict_vocab)) / 2
        scores = cosines[: len(good)].prod(0) / (cosines[len(good) :].prod(0) + np.float32(_SMALL))
        return self._named(scores, topn, [*good, *bad])

    def rank_by_centrality(self, words: Sequence[str]) -> list[tuple[float, str]]:
        """Return the cosine of each word with the mean of all, the most central first."""
        if not words:
            raise UsageError("no word to choose from")
        rows = self._unit(list(words))
        found = (rows @ unit_vector(rows.mean(0))).tolist()
        return sorted(zip(found, words, strict=True), reverse=True)

    def doesnt_match(self, words: Sequence[str]) -> str:
        """Return the word that is farthest from the mean of all."""
        return self.rank_by_centrality(words)[-1][1]

    def _unit(self, keys: Sequence[Key]) -> Floats:
        rows = np.stack([self.get_vector(key) for key in keys]).astype(np.float32)
        norms = norms_of(rows, np.array([_row(self, key) for key in keys], np.int64), self.name)
        return scaled(rows, norms)

    def _named(self, scores: Floats, topn: int, asked: Sequence[Key]) -> Neighbours:
        known = [row for key in asked if (row := _row(self, key)) >= 0]
        return [(self.index_to_key[row], float(scores[row])) for row in best(scores, topn, known)]


def _row(vectors: Vectors, key: Key) -> int:
    """Return the row of a key, -1 for one that has none."""
    if isinstance(key, str):
        return int(vectors.get_index(key, -1) or 0)
    return -1 if isinstance(key, np.ndarray) else int(key)


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
