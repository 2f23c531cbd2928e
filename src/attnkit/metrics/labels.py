"""Accuracy, precision, recall, F1 and confusion counts of labels and entities.

Scores are percentages. An entity is correct only if its type and both boundaries match, as in conlleval and seqeval
(Tjong Kim Sang and De Meulder 2003, section 2.3). A tag is ``O``, or ``B``, ``I``, ``E`` or ``S`` (begin, inside, end,
single), a hyphen and the entity type; ``L`` and ``U`` (last, unit) are synonyms of ``E`` and ``S``.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.protocols import entities

_DIGITS = 6  # decimals of a probability; later decimals depend on the batch composition


def rounded(probability: float) -> float:
    """Round a probability to the decimals that do not depend on the batch composition."""
    return round(probability, _DIGITS)


class Mistake(NamedTuple):
    """A text whose predicted label is not its gold label; sorted by confidence."""

    probability: float  #: of the predicted label
    text: str
    gold: str
    predicted: str


@dataclass(frozen=True)
class LabelScores:
    """Accuracy and macro-averaged F1 in percent."""

    accuracy: float
    macro_f1: float
    """Unweighted mean of the F1 of all labels that occur in the predictions or the gold labels."""


@dataclass(frozen=True)
class ClassScores:
    """Counts and scores in percent of one class; a score is 0 if its denominator is 0."""

    right: int
    found: int
    expected: int

    @property
    def precision(self) -> float:
        """Percentage of predictions that are correct."""
        return 100 * self.right / max(1, self.found)

    @property
    def recall(self) -> float:
        """Percentage of gold labels or entities that are found."""
        return 100 * self.right / max(1, self.expected)

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall in percent, 2 right / (found + expected)."""
        return 200 * self.right / max(1, self.found + self.expected)

    def to_dict(self) -> dict[str, float]:
        """Return the scores and counts as plain data for ``--json``."""
        rates = {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        return {**rates, "expected": self.expected, "found": self.found}


@dataclass(frozen=True, eq=False)
class Confusion:
    """Confusion matrix with gold labels as rows and predicted labels as columns."""

    labels: tuple[str, ...]
    counts: NDArray[np.int64]  #: (L, L): gold, predicted

    @property
    def accuracy(self) -> float:
        """Percentage of examples on the diagonal; 0 without examples."""
        return 100 * int(self.counts.trace()) / max(1, int(self.counts.sum()))

    def classes(self) -> dict[str, ClassScores]:
        """Return the scores per label."""
        parts = (self.counts.diagonal(), self.counts.sum(axis=0), self.counts.sum(axis=1))
        rows = zip(*(part.tolist() for part in parts), strict=True)
        return {label: ClassScores(*row) for label, row in zip(self.labels, rows, strict=True)}


def label_scores(found: Sequence[Hashable], expected: Sequence[Hashable]) -> LabelScores:
    """Return accuracy and macro-F1 of predicted labels against gold labels.

    Raises ``ValueError`` if the lengths differ or are 0.
    """
    if len(found) != len(expected) or not expected:
        raise ValueError(f"got {len(found)} predicted labels for {len(expected)} examples")
    right = Counter(label for label, other in zip(found, expected, strict=True) if label == other)
    # F1 is 2 TP / (2 TP + FP + FN): predictions (TP + FP) plus gold labels (TP + FN) are the denominator.
    both = Counter(found) + Counter(expected)
    f1 = [2 * right[label] / both[label] for label in both]
    return LabelScores(100 * sum(right.values()) / len(expected), 100 * sum(f1) / len(f1))


def confusion(found: Sequence[str], expected: Sequence[str], labels: Sequence[str] | None = None) -> Confusion:
    """Return the confusion matrix; raise ValueError for a label not in ``labels``."""
    if len(found) != len(expected):
        raise ValueError(f"got {len(found)} predicted labels for {len(expected)} examples")
    names = tuple(sorted({*found, *expected}) if labels is None else labels)
    index = {label: i for i, label in enumerate(names)}
    if unknown := {*found, *expected} - index.keys():
        raise ValueError(f"unknown labels: {', '.join(sorted(unknown))}")
    counts = np.zeros((len(names), len(names)), np.int64)
    for (gold, predicted), n in Counter(zip(expected, found, strict=True)).items():
        counts[index[gold], index[predicted]] = n
    return Confusion(names, counts)


def class_weights(counts: Sequence[int], power: float = 1.0) -> list[float]:
    """Return one weight per label, ``count ** -power`` scaled to mean 1 over examples.

    With power 1, all labels have the same total weight; with power 0, all examples have the same weight. A label that
    never occurs gets weight 0.

    >>> class_weights([30, 10])
    [0.6666666666666666, 2.0]

    Raises:
        ValueError: A count is negative, or all counts are 0.
    """
    if min(counts, default=0) < 0 or not any(counts):
        raise ValueError(f"cannot weight labels with counts {list(counts)}")
    raw = [n**-power if n else 0.0 for n in counts]
    scale = sum(counts) / sum(n * weight for n, weight in zip(counts, raw, strict=True))
    return [scale * weight for weight in raw]


@dataclass(frozen=True)
class SpanScores:
    """Entity scores and tag accuracy of a set of sentences."""

    all: ClassScores  #: micro-average over all types, as in conlleval's first line
    by_type: Mapping[str, ClassScores]  #: scores per predicted or gold type, in alphabetical order
    accuracy: float  #: percentage of words with the correct tag


def span_scores(found: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> SpanScores:
    """Score predicted against gold tags; raise ValueError if lengths differ or are 0."""
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
