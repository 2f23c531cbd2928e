"""Entities in tags, and their precision, recall and F1 as conlleval and seqeval count them. Strings in, percent out.

A tag is ``O``, or ``B``, ``I``, ``E`` or ``S`` (begin, inside, end, single), a hyphen, and the type of the entity.
``L`` and ``U`` (last, unit) are other letters for ``E`` and ``S``.
An entity is found only if its type and both its ends are right (Tjong Kim Sang and De Meulder 2003, section 2.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

OUTSIDE = "O"
_READ_AS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class Entity(NamedTuple):
    """Words ``begin`` up to, but not including, ``end``."""

    type: str
    begin: int
    end: int


@dataclass(frozen=True)
class TypeScores:
    """Of entities of one type, or of all: what is counted, and shares in percent, 0 where there is nothing."""

    right: int
    found: int
    expected: int

    @property
    def precision(self) -> float:
        """How many of those found are right."""
        return 100 * self.right / max(1, self.found)

    @property
    def recall(self) -> float:
        """How many of those expected are found."""
        return 100 * self.right / max(1, self.expected)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 2 right / (found + expected)."""
        return 200 * self.right / max(1, self.found + self.expected)


@dataclass(frozen=True)
class SpanScores:
    """Scores of the entities in some sentences."""

    all: TypeScores
    """Of entities of all types together (micro-averaged), as conlleval's first line has them."""
    by_type: Mapping[str, TypeScores]
    """Of each type that was found or expected, in alphabetical order."""
    accuracy: float
    """Share of words whose tag is right, in percent."""


def split_tag(tag: str) -> tuple[str, str]:
    """Return the letter of a tag and the type after its hyphen; of ``O`` and of bare letters the type is empty.

    >>> split_tag("B-creative-work")
    ('B', 'creative-work')
    """
    letter, _, type = tag.partition("-")
    return letter, type


def names_entity(tag: str) -> bool:
    """Return whether a tag is one of an entity: one of the letters, a hyphen and a type."""
    letter, type = split_tag(tag)
    return letter in _READ_AS and bool(type)


def entities(tags: Sequence[str]) -> list[Entity]:
    """Return the entities of a sentence, whatever its tags are: what is not well-formed is read as conlleval does.

    A word goes on with the entity before it if that one is of its type and has not ended (its last tag is B or I), and
    its own tag is I, E or L. So an I after O, or after another type, begins an entity; which is how IOB1 writes most.
    A tag with another letter names none, as ``O`` does.

    >>> entities(["O", "I-PER", "I-PER", "B-PER", "I-LOC"])
    [Entity(type='PER', begin=1, end=3), Entity(type='PER', begin=3, end=4), Entity(type='LOC', begin=4, end=5)]
    """
    found: list[Entity] = []
    before, type_before = OUTSIDE, ""
    for place, tag in enumerate(tags):
        letter, type = split_tag(tag)
        letter = _READ_AS.get(letter, OUTSIDE)
        if letter != OUTSIDE:
            if before in ("B", "I") and letter in ("I", "E") and type == type_before:
                found[-1] = found[-1]._replace(end=place + 1)
            else:
                found.append(Entity(type, place, place + 1))
        before, type_before = letter, type
    return found


def span_scores(found: Sequence[Sequence[str]], expected: Sequence[Sequence[str]]) -> SpanScores:
    """Return the scores of the tags found for some sentences.

    Raises:
        ValueError: there are no words, or not as many tags found as expected.
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
