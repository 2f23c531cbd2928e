"""Lines that occur twice, found by 8-byte hashes: millions of lines in bounded memory.

Two different lines share a hash about once in 10^5 corpora of 10 million lines. Knows no findings and no reports.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np

_BATCH = 1 << 16


@dataclass(frozen=True)
class Repeats:
    """How many items occurred before, and the first of them; items are counted from 0."""

    count: int = 0
    first: int | None = None
    original: int | None = None
    """Where the first one occurred before."""


class Seen:
    """The hashes of the items of one file, 8 bytes each."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def add(self, item: object) -> None:
        """Note the next item (within one process: strings hash differently in each)."""
        self._hashes.append(hash(item))

    def repeats(self) -> Repeats:
        """Return what occurs twice among the items."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")  # equal ones stay in the order of the file
        equal = hashes[order[1:]] == hashes[order[:-1]]
        if not equal.any():
            return Repeats()
        later = order[1:][equal]
        first = int(later.min())
        return Repeats(len(later), first, int(np.flatnonzero(hashes == hashes[first])[0]))

    def overlap(self, others: Iterable[object]) -> Repeats:
        """Return which items occur in ``others``, which are read once; ``original`` counts among those."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")
        ascending, found = hashes[order], np.zeros(len(hashes), dtype=np.bool_)
        where = np.full(len(hashes), -1, dtype=np.int64)
        if not len(hashes):
            return Repeats()
        remaining, n_read = iter(others), 0
        while batch := [hash(item) for item in islice(remaining, _BATCH)]:
            theirs = np.array(batch, dtype=np.int64)
            places = np.searchsorted(ascending, theirs)
            hits = np.flatnonzero(
                (places < len(ascending)) & (ascending[np.minimum(places, len(ascending) - 1)] == theirs)
            )
            fresh = hits[where[places[hits]] < 0]
            where[places[fresh][::-1]] = n_read + fresh[::-1]
            found[places[hits]] = True
            n_read += len(batch)
        # only the first of equal hashes was marked: spread the mark over its equals
        group = np.searchsorted(ascending, ascending)
        found, where = found[group], where[group]
        if not found.any():
            return Repeats()
        items = order[found]
        first = int(items.min())
        return Repeats(len(items), first, int(where[found][int(items.argmin())]))
