"""Precision, recall and F1 of tagged entities, in percent, as conlleval and seqeval count them.

A tag is ``O``, or ``B``, ``I``, ``E`` or ``S`` (begin, inside, end, single), a hyphen, and the type of the entity.
``L`` and ``U`` (last, unit) are other letters for ``E`` and ``S``.
An entity is found only if its type and both its ends are right (Tjong Kim Sang and De Meulder 2003, section 2.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnkit.metrics.labels import ClassScores
from attnkit.protocols import entities


@dataclass(frozen=True)
class SpanScores:
    """Entity scores of a set of sentences."""

    all: ClassScores  #: Micro-average over all types, the first line of conlleval
    by_type: Mapping[str, ClassScores]  #: scores per predicted or gold type, in alphabetical order
    accuracy: float  #: percentage of words with the correct tag


def span_scores(found: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> SpanScores:
    """Score predicted tags against gold tags, sentence by sentence.

    Raises:
        ValueError: no words, or predicted and gold tags differ in number.
    """
    if [len(tags) for tags in found] != [len(tags) for tags in expected] or not any(expected):
        raise ValueError("there is not one tag found for each tag expected")
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
