"""What several rooms must agree on: the tags of entities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

OUTSIDE = "O"


_READ_AS = {"B": "B", "I": "I", "E": "E", "S": "S", "L": "E", "U": "S"}


class Entity(NamedTuple):
    """Words ``begin`` up to, but not including, ``end``."""

    type: str
    begin: int
    end: int


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
