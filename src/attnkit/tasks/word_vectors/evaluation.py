"""Scores of word vectors: agreement with people's judgements of pairs, and analogies that are solved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from attnkit.interop.word_vectors.table import Floats
from attnkit.metrics.similarity import pearson, spearman
from attnkit.tasks.word_vectors.questions import Pair, Section

if TYPE_CHECKING:
    from attnkit.tasks.word_vectors.vectors import Vectors

Method = Literal["add", "mul"]
_BATCH = 256  # questions at a time
_SMALL = np.float32(1e-6)


@dataclass(frozen=True)
class PairScores:
    """How cosines agree with judgements; correlations are None where fewer than two pairs are known, or all equal."""

    spearman: float | None
    pearson: float | None
    known: int
    """Pairs whose words both have a vector."""
    unknown: int
    """Pairs that are left out."""


@dataclass(frozen=True)
class SectionScores:
    """Analogies of one section."""

    name: str
    right: int
    known: int
    """Questions whose four words all have a vector."""
    unknown: int
    """Questions that are left out."""

    @property
    def accuracy(self) -> float | None:
        """Share of the known ones that are solved."""
        return self.right / self.known if self.known else None


@dataclass(frozen=True)
class AnalogyScores:
    """Analogies of a file."""

    total: SectionScores
    groups: tuple[SectionScores, ...]
    """Semantic and syntactic ones, where sections are named as in questions-words."""
    sections: tuple[SectionScores, ...]


def score_pairs(vectors: Vectors, pairs: Sequence[Pair], top: int | None = None, fold: bool = True) -> PairScores:
    """Score pairs by the first ``top`` words alone; ``fold`` takes no account of upper case, as gensim does."""
    rows = Folded(vectors, top, fold)
    known = [(a, b, pair.score) for pair in pairs if (a := rows[pair.a]) >= 0 and (b := rows[pair.b]) >= 0]
    unknown = len(pairs) - len(known)
    if len(known) < 2:
        return PairScores(None, None, len(known), unknown)
    first, second = (vectors.index.unit(np.array([pair[i] for pair in known], np.int64)) for i in (0, 1))
    cosines = (first.astype(np.float64) * second).sum(1)
    scores = [pair[2] for pair in known]
    by_rank, by_value = (
        None if np.isnan(found) else found for found in (f(cosines, scores) for f in (spearman, pearson))
    )
    return PairScores(by_rank, by_value, len(known), unknown)


def score_analogies(
    vectors: Vectors, sections: Sequence[Section], top: int | None = None, fold: bool = True, method: Method = "add"
) -> AnalogyScores:
    """Answer analogies by the first ``top`` words alone, by 3CosAdd or 3CosMul; errors as ``Index.norms``."""
    rows = Folded(vectors, top, fold)
    unit = vectors.index.unit(np.arange(len(rows)))
    scores = []
    for section in sections:
        asked = [tuple(rows[word] for word in question) for question in section.questions]
        known = np.array([question for question in asked if min(question) >= 0], np.int64).reshape(-1, 4)
        right = sum(int((answer == part[:, 3]).sum()) for part, answer in _answers(unit, known, rows, method))
        scores.append(SectionScores(section.name, right, len(known), len(asked) - len(known)))
    syntactic = [found for found, section in zip(scores, sections, strict=True) if section.is_syntactic]
    semantic = [found for found, section in zip(scores, sections, strict=True) if not section.is_syntactic]
    groups = (_sum("semantic", semantic), _sum("syntactic", syntactic)) if semantic and syntactic else ()
    return AnalogyScores(_sum("all", scores), groups, tuple(scores))


def _sum(name: str, scores: Sequence[SectionScores]) -> SectionScores:
    return SectionScores(name, *(sum(getattr(s, key) for s in scores) for key in ("right", "known", "unknown")))


class Folded:
    """Rows of the first words of some vectors, by the words without regard to case; the more frequent one counts."""

    def __init__(self, vectors: Vectors, top: int | None, fold: bool) -> None:
        words = vectors.index_to_key[: top or None]
        self._fold = fold
        self._rows: dict[str, int] = {}
        self.same: dict[int, list[int]] = {}
        """Row -> the others of the same word, written in another case."""
        self._n = len(words)
        for row, word in enumerate(words):
            first = self._rows.setdefault(word.lower() if fold else word, row)
            if first != row:
                self.same.setdefault(first, []).append(row)

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, word: str) -> int:
        """Return the row of a word, -1 where it has none."""
        return self._rows.get(word.lower() if self._fold else word, -1)


def _answers(
    unit: Floats, known: NDArray[np.int64], rows: Folded, method: Method
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield questions in batches, each with the rows (n,) that answer them: of no word of the question."""
    others = {row: first for first, found in rows.same.items() for row in found}
    for start in range(0, len(known), _BATCH):
        part = known[start : start + _BATCH]
        a, b, c = part[:, 0], part[:, 1], part[:, 2]
        if method == "add":
            scores = (unit[b] - unit[a] + unit[c]) @ unit.T
        else:
            near = [(1 + unit[column] @ unit.T) / 2 for column in (b, c, a)]
            scores = near[0] * near[1] / (near[2] + _SMALL)
        scores[np.arange(len(part))[:, None], part[:, :3]] = -np.inf
        for i, question in enumerate(part[:, :3].tolist() if rows.same else ()):
            scores[i, [row for first in question for row in rows.same.get(first, ())]] = -np.inf
        answers = scores.argmax(1)
        yield part, np.array([others.get(row, row) for row in answers.tolist()], np.int64)
