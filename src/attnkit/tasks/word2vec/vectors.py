"""Word vectors and their words: ``Vectors``. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from attnkit.errors import UsageError
from attnkit.formats.word_vectors.table import Floats
from attnkit.tasks.word2vec.rows import Key, WordRows
from attnkit.tasks.word2vec.search import best, norms_of, scaled, unit_vector

if TYPE_CHECKING:
    from attnkit.tasks.word2vec.evaluate import AnalogyScores, PairScores


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

    def distances(self, word: Key, other_words: Sequence[str] = ()) -> Floats:
        """Return 1 - cosine of a word and of each of some others, or of all words (V,) where none are given."""
        query = self._unit([word])
        cosines = query @ self._unit(list(other_words)).T if other_words else self.index.cosines(query)
        found: Floats = 1 - cosines[0]
        return found

    def closer_than(self, first: str, second: str) -> list[str]:
        """Return the words that are nearer to one than another is."""
        found = self.distances(first)
        limit = found[row] if (row := _row(self, second)) >= 0 else self.distance(first, second)
        nearer = np.flatnonzero(found < limit).tolist()
        return [self.index_to_key[i] for i in nearer if i != _row(self, first)]

    def rank(self, first: str, second: str) -> int:
        """Return the place of a word among the neighbours of another, counted from 1."""
        return len(self.closer_than(first, second)) + 1

    def most_similar_to_given(self, word: Key, others: Sequence[str]) -> str:
        """Return the word of a list that is nearest to a word."""
        if not others:
            raise UsageError("no word to choose from")
        return others[int(self.distances(word, others).argmin())]

    def get_normed_vectors(self) -> Floats:
        """Return all rows (V, D) with length 1, which takes as much memory as the rows."""
        return self.index.unit(np.arange(len(self)))

    def get_mean_vector(
        self,
        keys: Sequence[Key],
        weights: Sequence[float] | None = None,
        pre_normalize: bool = True,
        post_normalize: bool = False,
        ignore_missing: bool = True,
    ) -> Floats:
        """Return the mean vector (D,) of some words and vectors, by their weights; words have length 1 before.

        Raises:
            UnknownWordError: no vector for a word, and none may be missing; or for any of them.
        """
        pairs = list(zip(keys, [1.0] * len(keys) if weights is None else weights, strict=True))
        known = [(key, weight) for key, weight in pairs if not isinstance(key, str) or key in self or self.unseen]
        if not pairs:
            raise UsageError("no word to take the mean of")
        if not known or (len(known) < len(pairs) and not ignore_missing):
            raise self.unknown(next(str(key) for key in keys if isinstance(key, str) and key not in self))
        scales = [pre_normalize and not isinstance(key, np.ndarray) for key, _ in known]
        rows = np.stack([self.get_vector(key, norm=norm) for (key, _), norm in zip(known, scales, strict=True)])
        signs = np.array([weight for _, weight in known], np.float32)
        mean: Floats = signs @ rows / np.abs(signs).sum()
        return unit_vector(mean) if post_normalize else mean

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

    def similar_by_word(self, word: str, topn: int = 10) -> Neighbours:
        """Return the nearest words to a word."""
        return self.most_similar([word], topn=topn)

    similar_by_key = similar_by_word

    def similar_by_vector(self, vector: Floats, topn: int = 10) -> Neighbours:
        """Return the nearest words to a vector."""
        return self.most_similar([vector], topn=topn)

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

    def evaluate_word_pairs(
        self, pairs: str | Path, restrict_vocab: int = 300_000, case_insensitive: bool = True
    ) -> PairScores:
        """Return how well cosines agree with people's judgements in a file (WordSim-353, SimLex-999)."""
        from attnkit.tasks.word2vec.evaluate import Known, read_pairs, score_pairs

        return score_pairs(self, read_pairs(Path(pairs)), Known(restrict_vocab, case_insensitive))

    def evaluate_word_analogies(
        self, analogies: str | Path, restrict_vocab: int = 300_000, case_insensitive: bool = True
    ) -> AnalogyScores:
        """Return how many analogies of a file (questions-words) are solved, in all and by section."""
        from attnkit.tasks.word2vec.evaluate import Known, read_analogies, score_analogies

        return score_analogies(self, read_analogies(Path(analogies)), Known(restrict_vocab, case_insensitive))

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
