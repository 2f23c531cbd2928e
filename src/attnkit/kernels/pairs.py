"""Pairs of adjacent word ids: counting in bounded memory, joining into phrases.

Compiled if numba is installed, else in plain Python, with the same results. Connectors may occur between the words of a
pair without being part of it. All connectors between two words are encoded as one number, the gap.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled
from attnkit.kernels.words import Numbers

RARE = -1  #: kind of a word that is excluded from pairs; 0 is a word of pairs, connectors have kinds from 1
_MAX_GAP = 1 << 24  # maximum gap before another connector
_LONGEST_GAP = 32
Pair = tuple[int, int, int]  #: id of the first word, gap, id of the second word


@dataclass(frozen=True)
class WordClasses:
    """Kinds of words: words of pairs, connectors or excluded words."""

    of: NDArray[np.int32]  #: (n,) kind of each word
    n_connectors: int = 0

    def encode_gap(self, connectors: Iterable[int]) -> int:
        """Encode the kinds of the connectors between two words as a gap."""
        gap = 0
        for kind in connectors:
            # Digits of base n_connectors + 1; kinds start at 1, so that every sequence has its own gap.
            gap = gap * (self.n_connectors + 1) + kind
        return gap

    def decode_gap(self, gap: int) -> list[int]:
        """Decode a gap into the kinds of its connectors."""
        kinds: list[int] = []
        while gap:
            # The last digit comes first.
            gap, kind = divmod(gap, self.n_connectors + 1)
            kinds.append(kind)
        return kinds[::-1]


class PairCounter:
    """Pair counter in bounded memory: at ``most`` distinct pairs, it prunes rare ones."""

    def __init__(self, kinds: WordClasses, most: int) -> None:
        self.n_lost = 0  #: occurrences of pruned pairs
        self._kinds = kinds
        self._most = most
        self._min_kept = 1
        self._loops = compiled_loops()
        self._state = np.array([-1, 0, 0], np.int64)  # first word, gap, pairs in the table
        # Pairs are in the table with numba, else in the dictionary.
        self._table = _new_table(1 << 12)
        self._counts: dict[Pair, int] = {}

    def add(self, numbers: Numbers) -> None:
        """Count the pairs in ``numbers``; a line may continue in the next call."""
        if self._loops is None:
            self._add_plainly(numbers.tolist())
            return
        done, base = 0, self._kinds.n_connectors + 1
        # The loop stops when the table is full, and resumes after the table is pruned or enlarged.
        while True:
            limits = (done, base, self._most)
            done = self._loops[0](numbers, self._kinds.of, limits, self._state, self._table)
            if done == len(numbers):
                return
            old, size = self._table, len(self._table[0])
            # Too many pairs: prune. Too few slots: double.
            if self._state[2] >= self._most:
                before = int(old[2].sum())
                while np.count_nonzero(old[2]) >= self._most:
                    old[2][old[2] <= self._min_kept] = 0
                    self._min_kept += 1
                self.n_lost += before - int(old[2].sum())
            else:
                size *= 2
            self._table = _new_table(size)
            self._state[2] = np.count_nonzero(old[2])
            # Deleting from open addressing leaves holes, so kept pairs are moved to a new table.
            self._loops[1](*old, *self._table)

    def _add_plainly(self, numbers: list[int]) -> None:
        kinds, base = self._kinds.of.tolist(), self._kinds.n_connectors + 1
        first, gap = self._state[:2].tolist()
        for number in numbers:
            kind = kinds[number] if number >= 0 else RARE
            if kind > 0:
                # Too many connectors: drop the pair instead of truncating its gap.
                first = first if gap < _MAX_GAP // base else -1
                gap = gap * base + kind if first >= 0 else 0
                continue
            if kind == 0 and first >= 0:
                # As in gensim: the threshold rises each time, so that pruning becomes rarer.
                while len(self._counts) >= self._most:
                    self.n_lost += sum(n for n in self._counts.values() if n <= self._min_kept)
                    self._counts = {pair: n for pair, n in self._counts.items() if n > self._min_kept}
                    self._min_kept += 1
                self._counts[first, gap, number] = self._counts.get((first, gap, number), 0) + 1
            # The second word of a pair may be the first of the next.
            first, gap = (number, 0) if kind == 0 else (-1, 0)
        self._state[:2] = first, gap

    def pairs(self, least: int = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return sorted pairs (n, 3) and their counts (n,), at least ``least`` each."""
        if self._loops is None:
            found = {pair: n for pair, n in self._counts.items() if n >= least}
            rows = np.array(list(found), np.int64).reshape(-1, 3)
            counts = np.array(list(found.values()), np.int64)
        else:
            # Free slots have count 0.
            kept = self._table[2] >= max(1, least)
            words, gaps, counts = self._table[0][kept], self._table[1][kept], self._table[2][kept]
            first, second = words >> np.uint64(32), words & np.uint64(0xFFFFFFFF)
            rows = np.stack([first.astype(np.int64), gaps, second.astype(np.int64)], axis=1)
        # Sorted, so that compiled and plain counting give the same order.
        order = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
        return rows[order], counts[order]


class PhraseJoiner:
    """Greedy left-to-right replacement of pairs by the ids of their phrases."""

    def __init__(self, kinds: WordClasses, targets: Mapping[Pair, int], n_numbers: int) -> None:
        """Set the replacement of each pair; all ids are below ``n_numbers``."""
        self.counts = np.zeros(n_numbers, np.int64)  #: how often each id was returned
        self.first = np.full(n_numbers, n_numbers, np.int64)  #: rank of each id by its first occurrence in the output
        self._kinds = kinds
        self._targets = targets
        self._loops = compiled_loops()
        self._state = np.zeros(3, np.int64)  # number of ids held back, gap, number of distinct ids returned
        self._held = np.zeros(_LONGEST_GAP, np.int32)
        self._table = _new_table(1 << max(4, (2 * len(targets)).bit_length()))
        if self._loops is not None:
            rows = np.array(list(targets), np.int64).reshape(-1, 3)
            ends = (rows[:, 0].astype(np.uint64) << np.uint64(32)) | rows[:, 2].astype(np.uint64)
            # Plus 1: 0 marks a free slot.
            values = np.array(list(targets.values()), np.int64) + 1
            self._loops[1](ends, rows[:, 1].astype(np.int32), values, *self._table)

    def join(self, numbers: Numbers) -> Numbers:
        """Return ids with pairs replaced; the last ids may be held back for the next call."""
        if self._loops is None:
            return np.array(self._join_plainly(numbers.tolist()), np.int32)
        out = np.empty(len(numbers) + _LONGEST_GAP, np.int32)
        classes, statistics = (self._kinds.of, self._kinds.n_connectors + 1), (self.counts, self.first)
        n = self._loops[2](numbers, classes, (self._state, self._held), self._table, statistics, out)
        return out[:n]

    def _join_plainly(self, numbers: list[int]) -> list[int]:
        kinds, base = self._kinds.of.tolist(), self._kinds.n_connectors + 1
        n_held, gap, n_distinct = self._state.tolist()
        held, out = self._held[:n_held].tolist(), []
        for number in numbers:
            kind = kinds[number] if number >= 0 else RARE
            found = self._targets.get((held[0], gap, number)) if kind == 0 and held else None
            if kind > 0 and held and gap < _MAX_GAP // base:
                held.append(number)
                gap = gap * base + kind
                continue
            if found is None:
                out += held
            # A word that may start the next pair is held back.
            held, gap = ([number], 0) if kind == 0 and found is None else ([], 0)
            if not held:
                out.append(number if found is None else found)
        for number in out:
            if number >= 0:
                if not self.counts[number]:
                    self.first[number] = n_distinct
                    n_distinct += 1
                self.counts[number] += 1
        self._held[: len(held)] = held
        self._state[:] = len(held), gap, n_distinct
        return out


def _new_table(size: int) -> tuple[NDArray[np.uint64], NDArray[np.int32], NDArray[np.int64]]:
    """Return an empty hash table of pairs, gaps and values; value 0 is a free slot."""
    return np.zeros(size, np.uint64), np.zeros(size, np.int32), np.zeros(size, np.int64)


# --- compiled


def _count(numbers: Any, kinds: Any, limits: Any, state: Any, table: Any) -> Any:
    """Count pairs until the table is full; return the position reached."""
    done, base, most = limits
    ends, gaps, counts = table
    # The size is a power of two: & mask is the remainder.
    mask, n = np.uint64(len(ends) - 1), state[2]
    first, gap = state[0], state[1]
    for i in range(done, len(numbers)):
        number = np.int64(numbers[i])
        kind = np.int64(kinds[number]) if number >= 0 else np.int64(-1)
        if kind > 0:
            first = first if gap < _MAX_GAP // base else np.int64(-1)
            gap = gap * base + kind if first >= 0 else np.int64(0)
            continue
        if kind == 0 and first >= 0:
            # Three quarters full at most; the caller prunes or enlarges the table and calls again from here.
            if n >= most or 4 * n >= 3 * len(ends):
                state[0], state[1], state[2] = first, gap, n
                return i
            pair = (np.uint64(first) << np.uint64(32)) | np.uint64(number)
            place = (pair ^ (np.uint64(gap) << np.uint64(20))) * np.uint64(0x9E3779B97F4A7C15)
            place = (place >> np.uint64(30)) & mask
            while counts[place] != 0 and not (ends[place] == pair and gaps[place] == gap):
                place = (place + np.uint64(1)) & mask
            n += np.int64(counts[place] == 0)
            ends[place], gaps[place] = pair, gap
            counts[place] += 1
        first, gap = number if kind == 0 else np.int64(-1), np.int64(0)
    state[0], state[1], state[2] = first, gap, n
    return len(numbers)


def _put(pairs: Any, between: Any, values: Any, ends: Any, gaps: Any, counts: Any) -> None:
    """Insert distinct pairs into an empty table, except those of value 0."""
    mask = np.uint64(len(ends) - 1)
    for i in range(len(values)):
        # Pruned by the caller.
        if values[i] == 0:
            continue
        place = (pairs[i] ^ (np.uint64(between[i]) << np.uint64(20))) * np.uint64(0x9E3779B97F4A7C15)
        place = (place >> np.uint64(30)) & mask
        while counts[place] != 0:
            place = (place + np.uint64(1)) & mask
        ends[place], gaps[place], counts[place] = pairs[i], between[i], values[i]


def _join(numbers: Any, classes: Any, progress: Any, table: Any, statistics: Any, out: Any) -> Any:
    """Write the joined ids to ``out``; return their number."""
    # Tuples of arrays: numba passes them unboxed. ``held`` are the ids of a possible pair.
    (kinds, base), (state, held), (ends, gaps, values) = classes, progress, table
    mask, n, n_held, gap = np.uint64(len(ends) - 1), 0, state[0], state[1]
    for i in range(len(numbers)):
        number = np.int64(numbers[i])
        kind = np.int64(kinds[number]) if number >= 0 else np.int64(-1)
        goes_on = kind > 0 and n_held > 0 and gap < _MAX_GAP // base
        if kind == 0 and n_held > 0:
            pair = (np.uint64(held[0]) << np.uint64(32)) | np.uint64(number)
            place = (pair ^ (np.uint64(gap) << np.uint64(20))) * np.uint64(0x9E3779B97F4A7C15)
            place = (place >> np.uint64(30)) & mask
            while values[place] != 0 and not (ends[place] == pair and gaps[place] == gap):
                place = (place + np.uint64(1)) & mask
            if values[place] != 0:
                number, kind, n_held = values[place] - 1, np.int64(-1), np.int64(0)
        if goes_on:
            gap = gap * base + kind
        else:
            out[n : n + n_held] = held[:n_held]
            n, n_held, gap = n + n_held, np.int64(0), np.int64(0)
        if goes_on or kind == 0:
            held[n_held] = number
            n_held += 1
        else:
            out[n] = number
            n += 1
    counts, first = statistics
    # Statistics of the new vocabulary.
    for number in out[:n]:
        if number >= 0:
            if counts[number] == 0:
                first[number] = state[2]
                state[2] += 1
            counts[number] += 1
    state[0], state[1] = n_held, gap
    return n


@cache
def compiled_loops() -> tuple[Callable[..., Any], ...] | None:
    """Return the three compiled loops, or None without numba."""
    numbers, ints, child = np.empty(1, np.int32), np.empty(1, np.int64), ("pairs", "compiled_loops")
    table = (np.empty(1, np.uint64), numbers, ints)
    count = compiled(_count, (numbers, numbers, (1, 1, 1), ints, table), child)
    if count is None:
        return None
    join = compiled(_join, (numbers, (numbers, 1), (ints, numbers), table, (ints, ints), numbers), child)
    return count, compiled(_put, (*table, *table), child), join
