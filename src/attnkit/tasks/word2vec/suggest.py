"""Words that look like one that is not there."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

_LOOKED_AT = 50_000
"""The most frequent words alone: comparing takes some microseconds each."""


def suggest(word: str, words: Sequence[str], n: int = 3) -> list[str]:
    """Return up to ``n`` words of a list that are spelt like one that is not in it, the nearest first."""
    short = word[:64]
    folded = short.casefold()
    frequent = words[:_LOOKED_AT]
    # Another case, or letters that have changed places.
    letters = sorted(folded)
    same = [o for o in frequent if len(o) == len(short) and sorted(o.casefold()) == letters][:n]
    # Two signs in common are the least that a near word has, and quick to see.
    signs = set(folded)
    close = [o for o in frequent if abs(len(o) - len(short)) <= 2 and len(signs & set(o)) * 2 > len(signs)]
    found = difflib.get_close_matches(short, close, n=n, cutoff=0.7)
    return list(dict.fromkeys([*same, *found]))[:n]
