"""Scores of labels and tagged entities in percent: accuracy, precision, recall, F1, confusion counts.

Entities are counted as by conlleval and seqeval. A tag is ``O``, or ``B``, ``I``, ``E`` or ``S`` (begin, inside, end,
single), a hyphen, and the type of the entity; ``L`` and ``U`` (last, unit) are other letters for ``E`` and ``S``. An
entity is found only if its type and both ends are right (Tjong Kim Sang and De Meulder 2003, section 2.3).
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnkit.protocols import entities

_DIGITS = 6  # of a probability: further ones change with the rows that happen to be computed together


def rounded(probability: float) -> float:
    """Round a probability to the digits that do not depend on the batch composition."""
    return round(probability, _DIGITS)


@dataclass(frozen=True)
class LabelScores:
    """In percent."""

    accuracy: float
    macro_f1: float
    """Mean of the labels' F1, over all labels that were expected or found; each counts the same, however rare."""


@dataclass(frozen=True)
class ClassScores:
    """Counts of one class of labels or entities, and scores in percent, 0 where there is nothing to divide by."""

    right: int
    found: int
    expected: int

    @property
    def precision(self) -> float:
        """Share of predictions that are right, in percent."""
        return 100 * self.right / max(1, self.found)

    @property
    def recall(self) -> float:
        """Share of gold labels or entities that are found, in percent."""
        return 100 * self.right / max(1, self.expected)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall, 2 right / (found + expected)."""
        return 200 * self.right / max(1, self.found + self.expected)

    def as_dictionary(self) -> dict[str, float]:
        """Return plain data for ``--json``."""
        rates = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {**rates, "expected": self.expected, "found": self.found}


@dataclass(frozen=True, eq=False)
class Confusion:
    """Confusion matrix: gold label (row), predicted label (column)."""

    labels: tuple[str, ...]
    counts: NDArray[np.int64]  #: (L, L): gold, predicted

    @property
    def accuracy(self) -> float:
        """Share of examples on the diagonal, in percent; 0 of none."""
        return 100 * int(self.counts.trace()) / max(1, int(self.counts.sum()))

    def classes(self) -> dict[str, ClassScores]:
        """Return the scores of each label."""
        parts = (self.counts.diagonal(), self.counts.sum(axis=0), self.counts.sum(axis=1))
        rows = zip(*(part.tolist() for part in parts), strict=True)
        return {label: ClassScores(*row) for label, row in zip(self.labels, rows, strict=True)}


def label_scores(found: Sequence[Hashable], expected: Sequence[Hashable]) -> LabelScores:
    """Return the scores of the labels found for some examples. Raises ``ValueError`` unless there is one for each.

    F1 of a label is 2 TP / (2 TP + FP + FN), the harmonic mean of its precision and its recall.
    """
    if len(found) != len(expected) or not expected:
        raise ValueError(f"{len(found)} labels found for {len(expected)} examples")
    right = Counter(label for label, other in zip(found, expected, strict=True) if label == other)
    # FP + TP is how often it was found, FN + TP how often expected: their sum is the denominator.
    both = Counter(found) + Counter(expected)
    f1 = [2 * right[label] / both[label] for label in both]
    return LabelScores(100 * sum(right.values()) / len(expected), 100 * sum(f1) / len(f1))


def confusion(found: Sequence[str], expected: Sequence[str], labels: Sequence[str] | None = None) -> Confusion:
    """Return confusion counts by the given labels, or all in alphabetical order. Raises ``ValueError`` for others."""
    if len(found) != len(expected):
        raise ValueError(f"{len(found)} labels found for {len(expected)} examples")
    names = tuple(sorted({*found, *expected}) if labels is None else labels)
    index = {label: i for i, label in enumerate(names)}
    if unknown := {*found, *expected} - index.keys():
        raise ValueError(f"unknown labels: {', '.join(sorted(unknown))}")
    counts = np.zeros((len(names), len(names)), np.int64)
    for (gold, predicted), n in Counter(zip(expected, found, strict=True)).items():
        counts[index[gold], index[predicted]] = n
    return Confusion(names, counts)


def class_weights(counts: Sequence[int], power: float = 1.0) -> list[float]:
    """Return a weight for each label by how often it occurs, such that the mean over all examples is 1.

    A weight is proportional to ``count ** -power``: with 1 all labels together weigh the same, with 0 all examples do.
    A label that never occurs gets the weight 0.

    >>> class_weights([30, 10])
    [0.6666666666666666, 2.0]

    Raises:
        ValueError: a count is negative, or all are 0.
    """
    if min(counts, default=0) < 0 or not any(counts):
        raise ValueError(f"cannot weight labels with counts {list(counts)}")
    raw = [n**-power if n else 0.0 for n in counts]
    scale = sum(counts) / sum(n * weight for n, weight in zip(counts, raw, strict=True))
    return [scale * weight for weight in raw]


@dataclass(frozen=True)
class SpanScores:
    """Entity scores of a set of sentences."""

    all: ClassScores  #: Micro-average over all types, the first line of conlleval
    by_type: Mapping[str, ClassScores]  #: scores per predicted or gold type, in alphabetical order
    accuracy: float  #: percentage of words with the correct tag


def span_scores(found: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> SpanScores:
    """Score predicted tags against gold tags. Raises ``ValueError`` without words, or unless there is one for each."""
    if [len(tags) for tags in found] != [len(tags) for tags in expected] or not any(expected):
        raise ValueError("expected one predicted tag per gold tag, and at least one")
    right, n_found, n_expected = Counter[str](), Counter[str](), Counter[str]()
    for ours, theirs in zip(found, expected, strict=True):
        here, there = set(entities(ours)), set(entities(theirs))
        right.update(entity.type for entity in here & there)
        n_found.update(entity.type for entity in here)
        n_expected.update(entity.type for entity in there)
    by_type = {type: ClassScores(right[type], n_found[type], n_expected[type]) for type in sorted(n_found | n_expected)}
    together = ClassScores(right.total(), n_found.total(), n_expected.total())
    n_words = sum(map(len, expected))
    same = sum(a == b for ours, theirs in zip(found, expected, strict=True) for a, b in zip(ours, theirs, strict=True))
    return SpanScores(together, by_type, 100 * same / n_words)
