"""Scores of labels: accuracy and macro-averaged F1. Strings or numbers in, percentages out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LabelScores:
    """In percent."""

    accuracy: float
    macro_f1: float
    """Mean of the labels' F1, over all labels that were expected or found; each counts the same, however rare."""


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
