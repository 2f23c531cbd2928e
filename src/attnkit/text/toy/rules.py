"""The rules of a synchronous grammar as text: a side in each language, with slots in braces that both fill alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from attnkit.text.toy.lexicon import GRAMMAR


@dataclass(frozen=True)
class Slot:
    """``{label=symbol.path words of=label.path object=label.path}`` in a rule."""

    label: str
    symbol: str
    path: str
    words: frozenset[str]
    references: dict[str, str]


Side = tuple[str | Slot, ...]


@cache
def side(text: str) -> Side:
    """Read one side of a rule: text with slots in braces."""
    parts: list[str | Slot] = []
    for i, part in enumerate(re.split(r"\{([^}]*)\}", text.strip())):
        if i % 2 == 0:
            parts.append(part)
        else:
            head, *words = part.split()
            label, _, symbol = head.rpartition("=")
            symbol, _, path = symbol.partition(".")
            references = dict(word.split("=") for word in words if "=" in word)
            parts.append(Slot(label or symbol, symbol, path, frozenset(w for w in words if "=" not in w), references))
    return tuple(part for part in parts if part)


@cache
def alternatives(symbol: str) -> tuple[tuple[tuple[Side, Side], ...], tuple[float, ...]]:
    """Return the alternatives of a symbol as (English, French), and their weights."""
    sides, weights = [], []
    for line in GRAMMAR["rules"][symbol]:
        weight, _, text = line.partition(" ") if re.match(r"\d[\d.]*( |$)", line) else ("1", "", line)
        en, bar, fr = text.partition("|")
        sides.append((side(en), side(fr if bar else en)))
        weights.append(float(weight))
    return tuple(sides), tuple(weights)


@cache
def clause_parts(name: str) -> tuple[str, str, tuple[Side, Side] | None]:
    """Return the symbol of a clause's subject, the class of its verbs, and what follows the verb on either side."""
    head, *complement = GRAMMAR["clauses"][name][0].split(" | ")
    who, group = head.split(", ")
    return who, group, (side(complement[0]), side(complement[-1])) if complement else None
