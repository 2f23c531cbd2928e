"""Overlap of a test set and a training text: lines that share most n-grams.

A test line counts as seen if a single training line has most of its n-grams, at any position. N-grams are of
bytes, without case, spaces and ASCII marks, so that any script will do.

Candidates are found as in a join by set similarity (Chaudhuri et al. 2006, prefix filtering): of a test line's n-grams
the rarest are its anchors. If ``MIN_SHARED`` of all are shared, a known number of anchors is.

Letters: N lines, M n-grams of all lines, T test lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from attnkit.quality.lines import Ints
from attnkit.quality.repetition import fold

N_GRAM = 8  #: bytes
MIN_SHARED = 0.8  #: share of a test line's n-grams that one training line has
MIN_N_GRAMS = 32  #: of a test line; shorter ones coincide without having been copied
MAX_TEST_LINES = 100_000  #: lines of a test set that are compared; the rest is left out
BATCH = 8192  #: lines compared at once
_BITS = 24  # of the table that tells most n-grams of a training text from anchors
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Hashes = NDArray[np.uint64]


class OverlapIndex:
    """The lines of a test set, to which lines of a training text are compared."""

    def __init__(self, lines: Iterable[str]) -> None:
        folded = [fold(line) for line in islice(lines, MAX_TEST_LINES)]
        ids, owner = n_grams(folded)
        self.sets = {line: set(part.tolist()) for line, part in _by_owner(ids, owner) if len(part) >= MIN_N_GRAMS}
        """Distinct n-grams of each line that is long enough."""
        kinds, counts = np.unique(ids, return_counts=True)
        frequency = dict(zip(kinds.tolist(), counts.tolist(), strict=True))
        anchors, owners = [], []
        self._least = np.zeros(len(folded), np.int64)  # anchors that a line with most of the n-grams has at least
        for line, grams in self.sets.items():
            n_missing = int((1 - MIN_SHARED) * len(grams))
            rarest = sorted(grams, key=lambda gram: (frequency[gram], gram))[: 2 * n_missing + 1]
            self._least[line] = len(rarest) - n_missing
            anchors += rarest
            owners += [line] * len(rarest)
        order = np.argsort(np.array(anchors, np.uint64), kind="stable")
        self._anchors, self._owners = np.array(anchors, np.uint64)[order], np.array(owners, np.int64)[order]
        self._is_likely = np.zeros(1 << _BITS, np.bool_)
        self._is_likely[self._anchors >> np.uint64(64 - _BITS)] = True

    def find(self, lines: Sequence[str]) -> Ints:
        """Return pairs (n, 2) of training and test lines that share most n-grams."""
        if not self.sets:
            return np.zeros((0, 2), np.int64)
        ids, owner = n_grams([fold(line) for line in lines])
        likely = np.flatnonzero(self._is_likely[ids >> np.uint64(64 - _BITS)])
        ids, owner = ids[likely], owner[likely]
        first, last = (np.searchsorted(self._anchors, ids, side) for side in ("left", "right"))
        n_owners = last - first
        # Every n-gram of a training line meets the test lines that it is an anchor of.
        within = np.arange(n_owners.sum()) - np.repeat(np.cumsum(n_owners) - n_owners, n_owners)
        tests = self._owners[np.repeat(first, n_owners) + within]
        keys, counts = np.unique(np.repeat(owner, n_owners) * len(self._least) + tests, return_counts=True)
        candidates = np.stack(np.divmod(keys, len(self._least)), axis=1)[counts >= self._least[keys % len(self._least)]]
        return np.array([pair for pair in candidates.tolist() if self._is_seen(lines[pair[0]], pair[1])]).reshape(-1, 2)

    def _is_seen(self, line: str, test: int) -> bool:
        grams = self.sets[test]
        return len(grams.intersection(n_grams([fold(line)])[0].tolist())) >= MIN_SHARED * len(grams)


def find_seen(test: Iterable[str], training: Iterable[str]) -> Ints:
    """Return the test lines, from 0, that are nearly lines of a training text."""
    index, remaining = OverlapIndex(test), iter(training)
    seen: set[int] = set()
    while index.sets and (batch := list(islice(remaining, BATCH))):
        seen.update(index.find(batch)[:, 1].tolist())
    return np.array(sorted(seen), np.int64)


def find_copies(training: Iterable[str], test: Iterable[str]) -> Ints:
    """Return the training lines, from 0, that nearly have a test line in them."""
    index, remaining, start = OverlapIndex(test), iter(training), 0
    found: list[int] = []
    while index.sets and (batch := list(islice(remaining, BATCH))):
        found += (start + np.unique(index.find(batch)[:, 0])).tolist()
        start += len(batch)
    return np.array(found, np.int64)


def n_grams(folded: Sequence[bytes]) -> tuple[Hashes, Ints]:
    """Return hashes (M,) of the n-grams of folded lines, and the line of each (M,)."""
    codes = np.frombuffer(b"".join(folded), np.uint8).astype(np.uint64)
    lengths = np.fromiter(map(len, folded), np.int64, len(folded))
    n = max(0, len(codes) - N_GRAM + 1)
    values = np.zeros(n, np.uint64)
    for place in range(N_GRAM):  # eight bytes are the number itself
        values |= codes[place : place + n] << np.uint64(8 * place)
    owner = np.repeat(np.arange(len(folded)), lengths)
    ends = np.repeat(np.cumsum(lengths), lengths)
    whole = np.arange(n) + N_GRAM <= ends[:n]  # not across lines
    return values[whole] * _FACTOR, owner[:n][whole]  # an odd factor: no two n-grams get one hash


def _by_owner(ids: Hashes, owner: Ints) -> Iterable[tuple[int, Hashes]]:
    edges = np.flatnonzero(np.diff(owner)) + 1
    for part in np.split(np.arange(len(owner)), edges):
        if len(part):
            yield int(owner[part[0]]), ids[part]
