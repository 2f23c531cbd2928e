"""Co-occurrence counts: a pair at distance d adds 1 / d.

The weight is that of Pennington et al. (2014, section 4.2). Counts are integers in units of 2^-32, so sums do not
depend on their order or on the number of parts; counts above 2^32 overflow. Pairs are sorted by an invertible hash of
their key: sorted runs can be merged, and the merged pairs are in pseudo-random order, as training needs.

Letters: V words, N tokens of a stretch of text, P pairs of words.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled
from attnkit.kernels.sampling import MULTIPLIERS, STEP, array_bits, random_bits

# Integers, since the sum of floats depends on their order.
UNIT = 1 << 32  #: fixed-point value of a count of 1
MAX_WORDS = 1 << 31  #: a pair of word ids fits into 64 bits
_STRETCH = 1 << 20  # pairs per sort in numpy
_SLOT_BYTES = 40  # bytes per slot of the table and of its sorted copy
_MIN_SLOTS = 1 << 15  # slots: more than the widest window needs
_MAX_SLOTS = (1 << 32) - 1
_U = np.uint64

Hashes = NDArray[np.uint64]


class Run(NamedTuple):
    """Distinct word pairs and their counts."""

    hashes: Hashes  #: (P,) ascending; ``unscramble`` gives the keys, low word * V + high word
    units: NDArray[np.uint64]  #: (P,) 2^32 times the sum of 1 / d


def scramble(keys: Hashes) -> Hashes:
    """Return the SplitMix64 hash of each key; no two keys share a hash."""
    return np.asarray(array_bits(keys, _U(1)))


def unscramble(hashes: Hashes) -> Hashes:
    """Return the keys of hashes, as the inverse of ``scramble``."""
    # Odd factors have an inverse modulo 2^64; an XOR with a shift by s is undone by XOR with shifts by s, 2 s, ...
    first, second = (_U(pow(int(factor), -1, 1 << 64)) for factor in MULTIPLIERS)
    z = (hashes ^ (hashes >> _U(31)) ^ (hashes >> _U(62))) * second
    z = (z ^ (z >> _U(27)) ^ (z >> _U(54))) * first
    return np.asarray((z ^ (z >> _U(30)) ^ (z >> _U(60))) - STEP)


def words_of(run: Run, n_words: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]]:
    """Return the lower word id, the higher word id and the count of each pair."""
    # A key is low * V + high.
    low, high = np.divmod(unscramble(run.hashes), _U(n_words))
    return low.astype(np.uint32), high.astype(np.uint32), (run.units / float(UNIT)).astype(np.float32)


def combine(runs: Sequence[Run]) -> Run:
    """Merge runs, sorted or not, and add up the counts of equal pairs."""
    hashes = np.concatenate([run.hashes for run in runs])
    units = np.concatenate([run.units for run in runs])
    order = np.argsort(hashes, kind="stable")
    hashes, units = hashes[order], units[order]
    # Positions where a new hash starts; reduceat adds up from one start to the next.
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
    return Run(hashes[first], np.add.reduceat(units, first) if len(first) else units)


def merge(runs: Sequence[Run], most: int) -> Iterator[Run]:
    """Merge sorted runs; yield ascending blocks, each of at most ``most`` input pairs."""
    # Position in each run of this k-way merge in blocks.
    at = [0] * len(runs)
    step = max(1, most // max(1, len(runs)))
    while open_runs := [n for n, run in enumerate(runs) if at[n] < len(run.hashes)]:
        # Each run has at most ``step`` pairs up to this border, so the block contains all of them.
        border = min(runs[n].hashes[min(at[n] + step, len(runs[n].hashes)) - 1] for n in open_runs)
        parts = []
        for n in open_runs:
            ahead = runs[n].hashes[at[n] : at[n] + step]
            end = at[n] + int(np.searchsorted(ahead, border, "right"))
            parts.append(Run(runs[n].hashes[at[n] : end], runs[n].units[at[n] : end]))
            at[n] = end
        yield combine(parts)


class Counter:
    """Pair counter in bounded memory that yields a sorted run when memory is full."""

    def __init__(self, n_words: int, memory: int) -> None:
        """Allocate a counter for pairs of ``n_words`` words in about ``memory`` bytes."""
        self.n_words = n_words
        n_slots = min(max(_MIN_SLOTS, memory // _SLOT_BYTES), _MAX_SLOTS)
        # 70 % full at most: linear probing slows down steeply beyond.
        self.most = n_slots * 7 // 10
        self._loop = compiled_loop()
        self._used = 0
        self._parts: list[Run] = []
        if self._loop:
            # (slots, 2) of hash and sum, 0 if free; side by side, so that a pair costs one cache miss.
            self._table = np.zeros((n_slots, 2), np.uint64)

    def add(self, words: NDArray[np.uint32], reach: NDArray[np.int32]) -> Iterator[Run]:
        """Count each word with the words before it; yield a run whenever memory is full.

        Args:
            words: (N,) word ids of a stretch of text.
            reach: (N,) number of preceding words that each word is paired with, limited by window, line and stretch.
                A stretch starts with words of reach 0, which are context for the words after them.
        """
        return self._add_by_table(words, reach) if self._loop else self._add_by_sorting(words, reach)

    def rest(self) -> Run:
        """Return the remaining counts and reset the counter."""
        if not self._loop:
            found = combine(self._parts) if self._parts else Run(np.empty(0, np.uint64), np.empty(0, np.uint64))
            self._parts, self._used = [], 0
            return found
        # Used slots in the order of the table, which is nearly sorted.
        found = self._table[self._table[:, 1] != 0]
        self._table, self._used = np.zeros(self._table.shape, np.uint64), 0  # pages that are not written take no memory
        order = np.argsort(found[:, 0])
        return Run(found[order, 0], found[order, 1])

    def _add_by_table(self, words: NDArray[np.uint32], reach: NDArray[np.int32]) -> Iterator[Run]:
        assert self._loop
        at, widest = 0, int(reach.max(initial=0))
        if widest > self.most:
            raise ValueError(f"window {widest:,} exceeds the table size")
        while True:
            # The loop returns early when the table is full.
            at, self._used = self._loop(words, reach, at, self.n_words, self._table, (self._used, self.most))
            if at == len(words):
                return
            yield self.rest()

    def _add_by_sorting(self, words: NDArray[np.uint32], reach: NDArray[np.int32]) -> Iterator[Run]:
        # Bounded by pairs, not words: a wide window makes many pairs per word.
        step = max(1, _STRETCH // max(1, int(reach.max(initial=0))))
        for begin in range(0, len(words), step):
            meetings = [Run(np.empty(0, np.uint64), np.empty(0, np.uint64))]
            near = reach[begin : begin + step]
            for d in range(1, int(near.max(initial=0)) + 1):
                at = begin + np.flatnonzero(near >= d)
                # (n,) each; the pair is unordered, so the lower id comes first.
                here, there = words[at], words[at - d]
                low, high = np.minimum(here, there).astype(np.uint64), np.maximum(here, there).astype(np.uint64)
                units = np.where(here == there, _U(2), _U(1)) * _U(UNIT // d)  # 1 / d in units of 2^-32
                meetings.append(Run(scramble(low * _U(self.n_words) + high), units))
            run = combine(meetings)
            self._parts.append(run)
            self._used += len(run.hashes)
            if self._used > self.most:
                full = self.rest()
                # Merging duplicates may have freed enough space: then continue with the merged run.
                if len(full.hashes) > self.most // 2:
                    yield full
                else:
                    self._parts, self._used = [full], len(full.hashes)


def _count_loop(words: Any, reach: Any, begin: int, n_words: int, table: Any, slots: Any) -> Any:
    """Count from ``begin`` until the table is full; return position and used slots."""
    used, most = slots
    n_slots = np.uint64(len(table))
    for t in range(begin, len(words)):
        # Checked once per word: its whole window fits, so the inner loop needs no check.
        if used + reach[t] > most:
            return t, used
        for d in range(1, reach[t] + 1):
            low, high = min(words[t], words[t - d]), max(words[t], words[t - d])
            z = random_bits(np.uint64(low) * np.uint64(n_words) + np.uint64(high), np.uint64(1))  # as in ``scramble``
            # The upper bits choose the slot, so that slots are nearly in the order of hashes.
            slot: Any = np.int64(((z >> np.uint64(32)) * n_slots) >> np.uint64(32))
            # Linear probing. A sum is never 0, so 0 marks a free slot, and hash 0 is not a special case.
            while table[slot, 1] != 0 and table[slot, 0] != z:
                slot = slot + 1 if slot + 1 < len(table) else 0
            if table[slot, 1] == 0:
                table[slot, 0] = z
                used += 1
            share = np.uint64(UNIT // d)
            table[slot, 1] += share + share if low == high else share  # a pair of equal words counts in both directions
    return len(words), used


@cache
def compiled_loop() -> Any:
    """Return the compiled loop, or None without numba."""
    arguments = (np.empty(0, np.uint32), np.empty(0, np.int32), 0, 0, np.zeros((0, 2), np.uint64), (0, 0))
    return compiled(_count_loop, arguments, ("cooccurrence", "compiled_loop"))
