"""Co-occurrence counts: a pair at distance d adds 1 / d (Pennington et al. 2014, section 4.2).

Sums are of integers, 2^32 to a whole, so they are the same in whatever order and in however many parts they are added
up; one that passes 2^32 is wrong. A pair's key is scrambled by a function that can be undone, and all is sorted by
that: parts merge as any sorted runs do, and what comes out is in no order that training could notice.

Letters: V words, N tokens of a stretch of text, P pairs of words.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled
from attnkit.kernels.sampling import MULTIPLIERS, STEP, array_bits, random_bits

# Integers, since sums of floats depend on their order.
UNIT = 1 << 32  #: fixed-point value of a count of 1
MAX_WORDS = 1 << 31  #: a pair of word numbers is one number of 64 bits
_STRETCH = 1 << 20  # pairs that numpy sorts at a time
_SLOT_BYTES = 40  # of the table, and of what it is sorted in
_MIN_SLOTS = 1 << 15  # slots: more than the widest window needs
_MAX_SLOTS = (1 << 32) - 1
_U = np.uint64

Hashes = NDArray[np.uint64]


class Run(NamedTuple):
    """Pairs of words, each once."""

    hashes: Hashes  #: (P,) ascending; ``unscramble`` gives the keys, low word * V + high word
    units: NDArray[np.uint64]  #: (P,) 2^32 times the sum of 1 / d


def scramble(keys: Hashes) -> Hashes:
    """Return splitmix64's hash of each key: no two share one, so keys themselves need not be stored."""
    return np.asarray(array_bits(keys, _U(1)))


def unscramble(hashes: Hashes) -> Hashes:
    """Return the keys whose hashes these are."""
    # Odd factors have an inverse modulo 2^64, and a shift by s is undone by XOR with shifts by s, 2 s, ...
    first, second = (_U(pow(int(factor), -1, 1 << 64)) for factor in MULTIPLIERS)
    z = (hashes ^ (hashes >> _U(31)) ^ (hashes >> _U(62))) * second
    z = (z ^ (z >> _U(27)) ^ (z >> _U(54))) * first
    return np.asarray((z ^ (z >> _U(30)) ^ (z >> _U(60))) - STEP)


def words_of(run: Run, n_words: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.float32]]:
    """Return the lower and the higher word of each pair, and its count."""
    # A key is low * V + high.
    low, high = np.divmod(unscramble(run.hashes), _U(n_words))
    return low.astype(np.uint32), high.astype(np.uint32), (run.units / float(UNIT)).astype(np.float32)


def combine(runs: Sequence[Run]) -> Run:
    """Add up pairs that occur in several runs, or several times in one; the runs need not be sorted."""
    hashes = np.concatenate([run.hashes for run in runs])
    units = np.concatenate([run.units for run in runs])
    order = np.argsort(hashes, kind="stable")
    hashes, units = hashes[order], units[order]
    # Where a new hash starts in the sorted order; reduceat adds from one start to the next.
    first = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]])[: len(hashes)])
    return Run(hashes[first], np.add.reduceat(units, first) if len(first) else units)


def merge(runs: Sequence[Run], most: int) -> Iterator[Run]:
    """Yield the sum of sorted runs in blocks, ascending, of which none takes more than ``most`` pairs of the runs."""
    # Position in each run; a k-way merge in blocks.
    at = [0] * len(runs)
    step = max(1, most // max(1, len(runs)))
    while open_runs := [n for n, run in enumerate(runs) if at[n] < len(run.hashes)]:
        # Nothing below this border is left out of any run, and no run has more than a step below it.
        border = min(runs[n].hashes[min(at[n] + step, len(runs[n].hashes)) - 1] for n in open_runs)
        parts = []
        for n in open_runs:
            ahead = runs[n].hashes[at[n] : at[n] + step]
            end = at[n] + int(np.searchsorted(ahead, border, "right"))
            parts.append(Run(runs[n].hashes[at[n] : end], runs[n].units[at[n] : end]))
            at[n] = end
        yield combine(parts)


class Counter:
    """Sums in a bounded part of memory; whenever it is full, what it holds is returned as a sorted run."""

    def __init__(self, n_words: int, memory: int) -> None:
        """Count pairs of ``n_words`` words in about ``memory`` bytes."""
        self.n_words = n_words
        n_slots = min(max(_MIN_SLOTS, memory // _SLOT_BYTES), _MAX_SLOTS)
        # 70 % full at most: linear probing slows down steeply beyond.
        self.most = n_slots * 7 // 10
        self._loop = compiled_loop()
        self._used = 0
        self._parts: list[Run] = []
        if self._loop:
            # Side by side, so that a pair costs one miss of the caches: (slots, 2) of hash and sum, 0 where none is.
            self._table = np.zeros((n_slots, 2), np.uint64)

    def add(self, words: NDArray[np.uint32], reach: NDArray[np.int32]) -> Iterator[Run]:
        """Count each word with the words before it, and yield the runs for which there was no more room.

        Args:
            words: (N,) of a stretch of text.
            reach: (N,) how many words before it each meets: as many as the window has, and its line, and the stretch.
                A stretch starts with words that meet none, so that those after them meet what was before it.
        """
        return self._add_by_table(words, reach) if self._loop else self._add_by_sorting(words, reach)

    def rest(self) -> Run:
        """Return the remaining counts and reset the counter."""
        if not self._loop:
            found = combine(self._parts) if self._parts else Run(np.empty(0, np.uint64), np.empty(0, np.uint64))
            self._parts, self._used = [], 0
            return found
        # Slots in use, in the order of the table, which is nearly sorted.
        found = self._table[self._table[:, 1] != 0]
        self._table, self._used = np.zeros(self._table.shape, np.uint64), 0  # what is never written takes no memory
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
                # (n,) each; the pair is unordered, so the lower number goes first.
                here, there = words[at], words[at - d]
                low, high = np.minimum(here, there).astype(np.uint64), np.maximum(here, there).astype(np.uint64)
                units = np.where(here == there, _U(2), _U(1)) * _U(UNIT // d)  # 1 / d in units of 2^-32
                meetings.append(Run(scramble(low * _U(self.n_words) + high), units))
            run = combine(meetings)
            self._parts.append(run)
            self._used += len(run.hashes)
            if self._used > self.most:
                full = self.rest()
                # Merging duplicates may have freed enough space: then continue with what is left.
                if len(full.hashes) > self.most // 2:
                    yield full
                else:
                    self._parts, self._used = [full], len(full.hashes)


def _count_loop(words: Any, reach: Any, begin: int, n_words: int, table: Any, slots: Any) -> Any:
    """Count from the word ``begin`` on until the table is full; return where that was, and how many slots are taken."""
    used, most = slots
    n_slots = np.uint64(len(table))
    for t in range(begin, len(words)):
        # Checked once per word: its whole window fits, so the inner loop needs no check.
        if used + reach[t] > most:
            return t, used
        for d in range(1, reach[t] + 1):
            low, high = min(words[t], words[t - d]), max(words[t], words[t - d])
            z = random_bits(np.uint64(low) * np.uint64(n_words) + np.uint64(high), np.uint64(1))  # as in ``scramble``
            # By the upper bits: slots are in the order of hashes, nearly.
            slot: Any = np.int64(((z >> np.uint64(32)) * n_slots) >> np.uint64(32))
            # Linear probing. A sum is never 0, so 0 marks a free slot, and hash 0 needs no care.
            while table[slot, 1] != 0 and table[slot, 0] != z:
                slot = slot + 1 if slot + 1 < len(table) else 0
            if table[slot, 1] == 0:
                table[slot, 0] = z
                used += 1
            share = np.uint64(UNIT // d)
            table[slot, 1] += share + share if low == high else share  # a word meets itself from both sides
    return len(words), used


@cache
def compiled_loop() -> Any:
    """Return the loop compiled by numba, None where that cannot be had."""
    arguments = (np.empty(0, np.uint32), np.empty(0, np.int32), 0, 0, np.zeros((0, 2), np.uint64), (0, 0))
    return compiled(_count_loop, arguments, ("cooccurrence", "compiled_loop"))
