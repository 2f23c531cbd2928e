"""Scores of labels: accuracy, F1 per label and averaged, confusion counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_DIGITS = 6  # of a probability: further ones change with the rows that happen to be computed together


def rounded(probability: float) -> float:
    """Return a probability with the digits that do not depend on which rows were computed together."""
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
        """Correct ones per predicted one."""
        return 100 * self.right / max(1, self.found)

    @property
    def recall(self) -> float:
        """Correct ones per gold one."""
        return 100 * self.right / max(1, self.expected)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 2 right / (found + expected)."""
        return 200 * self.right / max(1, self.found + self.expected)

    def as_dictionary(self) -> dict[str, float]:
        """Return plain data for ``--json``."""
        rates = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {**rates, "expected": self.expected, "found": self.found}


@dataclass(frozen=True, eq=False)
class Confusion:
    """How often each label (row) was found to be each other (column)."""

    labels: tuple[str, ...]
    counts: NDArray[np.int64]  #: (L, L): expected, found

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
    """Return the confusion counts, with labels in the order given, or else alphabetical.

    Raises:
        ValueError: there is not one label found for each expected, or one that ``labels`` lacks.
    """
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
        raise ValueError(f"no weights for labels that occur {list(counts)} times")
    raw = [n**-power if n else 0.0 for n in counts]
    scale = sum(counts) / sum(n * weight for n, weight in zip(counts, raw, strict=True))
    return [scale * weight for weight in raw]
