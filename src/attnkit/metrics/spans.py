"""Precision, recall and F1 of tagged entities, in percent, as conlleval and seqeval count them.

A tag is ``O``, or ``B``, ``I``, ``E`` or ``S`` (begin, inside, end, single), a hyphen, and the type of the entity.
``L`` and ``U`` (last, unit) are other letters for ``E`` and ``S``.
An entity is found only if its type and both its ends are right (Tjong Kim Sang and De Meulder 2003, section 2.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnkit.protocols import entities


@dataclass(frozen=True)
class TypeScores:
    """Counts and scores of one entity type or of all types; scores are in percent, 0 without entities."""

    right: int
    found: int
    expected: int

    @property
    def precision(self) -> float:
        """Correct entities per predicted entity."""
        return 100 * self.right / max(1, self.found)

    @property
    def recall(self) -> float:
        """Correct entities per gold entity."""
        return 100 * self.right / max(1, self.expected)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 2 right / (found + expected)."""
        return 200 * self.right / max(1, self.found + self.expected)


@dataclass(frozen=True)
class SpanScores:
    """Entity scores of a set of sentences."""

    all: TypeScores
    """Micro-average over all types, the first line of conlleval."""
    by_type: Mapping[str, TypeScores]
    """Scores per predicted or gold type, in alphabetical order."""
    accuracy: float
    """Percentage of words with the correct tag."""


def span_scores(found: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> SpanScores:
    """Score predicted tags against gold tags, sentence by sentence.

    Raises:
        ValueError: no words, or predicted and gold tags differ in number.
    """
    if [len(tags) for tags in found] != [len(tags) for tags in expected] or not any(expected):
        raise ValueError("there is not one tag found for each tag expected")
    right: Counter[str] = Counter()
    n_found: Counter[str] = Counter()
    n_expected: Counter[str] = Counter()
    for ours, theirs in zip(found, expected, strict=True):
        here, there = set(entities(ours)), set(entities(theirs))
        right.update(entity.type for entity in here & there)
        n_found.update(entity.type for entity in here)
        n_expected.update(entity.type for entity in there)
    by_type = {type: TypeScores(right[type], n_found[type], n_expected[type]) for type in sorted(n_found | n_expected)}
    together = TypeScores(right.total(), n_found.total(), n_expected.total())
    n_words = sum(map(len, expected))
    same = sum(a == b for ours, theirs in zip(found, expected, strict=True) for a, b in zip(ours, theirs, strict=True))
    return SpanScores(together, by_type, 100 * same / n_words)
