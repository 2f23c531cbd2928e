"""Byte-pair merges of counted words in compiled loops (Sennrich et al. 2016).

The loops repeat the trainer of Hugging Face ``tokenizers`` step by step, which is their tested reference: a queue holds
pairs with their counts and the words that contain them. The most frequent pair is merged; ties go to the lower ids.
Ids are numbers here; the caller knows what they spell.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled, inline

_READY, _NO_ROOM = 0, 1
# Items of ``state``: pairs in the table, entries of the queue, entries ever made, used items of the word lists, notes.
_N_PAIRS, _N_QUEUED, _N_ENTRIES, _N_LISTED, _N_NOTES = range(5)


@inline
def _find(key: Any, keys: Any) -> Any:
    """Return the place of a key in the table, or the free one where it belongs."""
    mask = np.uint64(len(keys) - 1)
    mixed = key * np.uint64(0x9E3779B97F4A7C15)
    place = (mixed ^ (mixed >> np.uint64(32))) & mask
    while keys[place] != 0 and keys[place] != key:
        place = (place + np.uint64(1)) & mask
    return place


@inline
def _place_of(first: Any, second: Any, keys: Any, state: Any) -> Any:
    """Return the place of a pair in the table; a new one gets a place.

    There must be room for it.
    """
    key = (np.uint64(first) << np.uint64(32) | np.uint64(second)) + np.uint64(1)
    place = _find(key, keys)
    if keys[place] == 0:
        keys[place] = key
        state[0] += 1
    return place


def _count_pairs(text: Any, table: Any, notes: Any, state: Any) -> int:
    """Count the pairs of all words and note once per pair and word where they are.

    The table must have room for all pairs. Return 0.
    """
    ids, starts, sizes, word_counts = text
    keys, pair_counts, last, noted = table
    note_slots, note_words = notes
    n_notes = 0
    for word in range(len(sizes)):
        for i in range(starts[word], starts[word] + sizes[word] - 1):
            place = _place_of(ids[i], ids[i + 1], keys, state)
            pair_counts[place] += word_counts[word]
            if last[place] != word + 1:
                last[place] = word + 1
                noted[place] += 1
                note_slots[n_notes], note_words[n_notes] = place, word
                n_notes += 1
    state[4] = n_notes
    return 0


def _merge_pair(text: Any, table: Any, entry: Any, new_id: int, notes: Any, state: Any) -> int:
    """Replace a pair by ``new_id`` in words of an entry; note where new pairs are.

    ``entry`` is the pair's key and the list of words. Return 1, with nothing changed, if the arrays lack room.
    """
    ids, starts, sizes, word_counts = text
    keys, pair_counts, last, noted = table
    note_slots, note_words = notes
    pair, words = entry
    left = np.int64((pair - np.uint64(1)) >> np.uint64(32))
    right = np.int64((pair - np.uint64(1)) & np.uint64(0xFFFFFFFF))
    # Every new pair has the new id on one side, and every occurrence of it takes one note.
    room = 0
    for word in words:
        room += sizes[word]
    if state[0] + min(room, 2 * new_id + 2) > len(keys) // 2 or state[4] + room > len(note_slots):
        return 1
    n_notes = state[4]
    for k in range(len(words)):
        word = words[k]
        begin, size = starts[word], sizes[word]
        i, out = 0, 0
        # Ids before ``out`` are those of the word after merging, ids from ``i`` on those before.
        while i < size:
            current = np.int64(ids[begin + i])
            if current == left and i + 1 < size and np.int64(ids[begin + i + 1]) == right:
                before = np.int64(ids[begin + out - 1]) if out > 0 else np.int64(-1)
                after = np.int64(ids[begin + i + 2]) if i + 2 < size else np.int64(-1)
                # The pairs with the neighbours lose an occurrence, and those with the new id gain one.
                for change in range(4):
                    first = before if change < 2 else (right if change == 2 else np.int64(new_id))
                    second = after if change >= 2 else (left if change == 0 else np.int64(new_id))
                    if first < 0 or second < 0:
                        continue
                    place = _place_of(first, second, keys, state)
                    if change % 2 == 0:
                        pair_counts[place] -= word_counts[word]
                    else:
                        pair_counts[place] += word_counts[word]
                        if last[place] != word + 1:
                            last[place] = word + 1
                            noted[place] += 1
                            note_slots[n_notes], note_words[n_notes] = place, word
                            n_notes += 1
                current = np.int64(new_id)
                i += 1
            ids[begin + out] = current
            out += 1
            i += 1
        sizes[word] = out
    state[4] = n_notes
    return 0


def _queue_notes(table: Any, notes: Any, queue: Any, state: Any) -> int:
    """Make a queue entry per noted pair; return 1, with nothing changed, without room."""
    keys, pair_counts, last, noted = table
    note_slots, note_words = notes
    heap, entry_counts, entry_slots, begins, ends, lists = queue
    n_notes = state[4]
    if state[2] + n_notes > len(heap) or state[3] + n_notes > len(lists):
        return 1
    for k in range(n_notes):
        slot = note_slots[k]
        # A positive number: words of the pair without a place yet. Negative: the entry that collects them.
        if noted[slot] > 0:
            entry = state[2]
            begins[entry] = ends[entry] = state[3]
            state[3] += noted[slot]
            state[2] += 1
            entry_slots[entry] = slot
            noted[slot] = -entry - 1
        entry = -noted[slot] - 1
        lists[ends[entry]] = note_words[k]
        ends[entry] += 1
    for k in range(n_notes):
        slot = note_slots[k]
        last[slot] = 0
        if noted[slot] == 0:
            continue
        entry = -noted[slot] - 1
        noted[slot] = 0
        count = pair_counts[slot]
        if count <= 0:
            continue
        entry_counts[entry] = count
        at = state[1]
        state[1] += 1
        # Up the heap, past parents that come out later.
        while at > 0:
            parent = heap[(at - 1) // 2]
            other = entry_counts[parent]
            if other > count or (other == count and keys[entry_slots[parent]] <= keys[slot]):
                break
            heap[at] = parent
            at = (at - 1) // 2
        heap[at] = entry
    state[4] = 0
    return 0


def _pop_entry(table: Any, queue: Any, state: Any) -> Any:
    """Remove and return the entry of the most frequent pair; -1 if none is left."""
    keys, pair_counts = table[:2]
    heap, entry_counts, entry_slots = queue[:3]
    while state[1] > 0:
        top = heap[0]
        # Counts change after an entry was queued: an outdated one goes back with the current count.
        is_current = entry_counts[top] == pair_counts[entry_slots[top]]
        moved = top
        if is_current:
            state[1] -= 1
            moved = heap[state[1]]
        else:
            entry_counts[top] = pair_counts[entry_slots[top]]
        # Down the heap from the root.
        at, n, count, key = 0, state[1], entry_counts[moved], keys[entry_slots[moved]]
        while 2 * at + 1 < n:
            child = 2 * at + 1
            if child + 1 < n:
                a, b = heap[child], heap[child + 1]
                if entry_counts[b] > entry_counts[a] or (
                    entry_counts[b] == entry_counts[a] and keys[entry_slots[b]] < keys[entry_slots[a]]
                ):
                    child += 1
            lower = heap[child]
            other = entry_counts[lower]
            if other < count or (other == count and keys[entry_slots[lower]] >= key):
                break
            heap[at] = lower
            at = child
        heap[at] = moved
        if is_current:
            return top
    return -1


def _move_pairs(old: Any, new: Any, entry_slots: Any, n_entries: int) -> int:
    """Move all pairs to a larger table and renumber the slots of entries; return 0."""
    slots = np.empty(len(old[0]), np.int32)
    for slot in range(len(old[0])):
        key = old[0][slot]
        if key != 0:
            place = _find(key, new[0])
            new[0][place], new[1][place] = key, old[1][slot]
            slots[slot] = place
    for entry in range(n_entries):
        entry_slots[entry] = slots[entry_slots[entry]]
    return 0


@cache
def compiled_loops() -> tuple[Callable[..., Any], ...] | None:
    """Return the five compiled loops, or None without numba."""
    ints, wide, keys = np.empty(1, np.int32), np.empty(1, np.int64), np.empty(1, np.uint64)
    text, table, notes, child = (ints, wide, ints, wide), (keys, wide, ints, ints), (ints, ints), "compiled_loops"
    queue = (ints, wide, ints, wide, wide, ints)
    count = compiled(_count_pairs, (text, table, notes, wide), ("merges", child))
    if count is None:
        return None
    merge = compiled(_merge_pair, (text, table, (np.uint64(1), ints), 1, notes, wide), ("merges", child))
    put = compiled(_queue_notes, (table, notes, queue, wide), ("merges", child))
    pop = compiled(_pop_entry, (table, queue, wide), ("merges", child))
    return count, merge, put, pop, compiled(_move_pairs, (table, table, ints, 1), ("merges", child))


def _new_table(n_slots: int) -> tuple[Any, ...]:
    return np.zeros(n_slots, np.uint64), np.zeros(n_slots, np.int64), *np.zeros((2, n_slots), np.int32)


def _longer(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return an array with room for ``size`` items, at least twice as long."""
    longer = np.empty(max(size, 2 * len(array)), array.dtype)
    longer[: len(array)] = array
    return longer


class PairMerger:
    """Words whose most frequent pair of ids is merged, again and again."""

    def __init__(self, ids: NDArray[np.int32], sizes: NDArray[np.int32], counts: NDArray[np.int64]) -> None:
        """Count the pairs of all words.

        Args:
            ids: (N,) ids of all words, one after the other; changed in place.
            sizes: (W,) number of ids of each word; changed in place.
            counts: (W,) occurrences of each word.

        Raises:
            RuntimeError: numba is not installed.
        """
        loops = compiled_loops()
        if loops is None:
            raise RuntimeError("merging pairs needs numba")
        self._count, self._merge, self._put, self._pop, self._move = loops
        self._text = (ids, np.cumsum(sizes, dtype=np.int64) - sizes, sizes, counts)
        n_ids = int(ids.max()) + 1 if len(ids) else 0
        self._table = _new_table(1 << (2 * min(len(ids), n_ids**2) + 16).bit_length())
        self._notes = (np.empty(len(ids), np.int32), np.empty(len(ids), np.int32))
        self._state = np.zeros(5, np.int64)
        self._entry = -1
        self._count(self._text, self._table, self._notes, self._state)
        n_pairs = int(self._state[_N_PAIRS])
        few, wide = np.empty(4 * n_pairs + 16, np.int32), np.empty(4 * n_pairs + 16, np.int64)
        lists = np.empty(len(ids) + 16, np.int32)
        self._queue: tuple[Any, ...] = (few, wide, few.copy(), wide.copy(), wide.copy(), lists)
        self._fill_queue()

    def pop(self) -> tuple[int, int, int] | None:
        """Return the left and right id of the most frequent pair and its count."""
        self._entry = int(self._pop(self._table, self._queue, self._state))
        if self._entry < 0:
            return None
        key = int(self._table[0][self._queue[2][self._entry]]) - 1
        return key >> 32, key & 0xFFFFFFFF, int(self._queue[1][self._entry])

    def merge(self, new_id: int) -> None:
        """Replace the pair that ``pop`` returned by an id; ids are at most ``new_id``."""
        words = self._queue[5][self._queue[3][self._entry] : self._queue[4][self._entry]]
        while True:
            key = self._table[0][self._queue[2][self._entry]]
            if not self._merge(self._text, self._table, (key, words), new_id, self._notes, self._state):
                break
            size = int(self._text[2][words].sum())
            if len(self._notes[0]) < size:
                self._notes = (np.empty(2 * size, np.int32), np.empty(2 * size, np.int32))
            if int(self._state[_N_PAIRS]) + min(size, 2 * new_id + 2) > len(self._table[0]) // 2:
                larger = _new_table(2 * len(self._table[0]))
                self._move(self._table, larger, self._queue[2], int(self._state[_N_ENTRIES]))
                self._table = larger
        self._fill_queue()

    def _fill_queue(self) -> None:
        while self._put(self._table, self._notes, self._queue, self._state):
            n_notes = int(self._state[_N_NOTES])
            n_entries, n_listed = int(self._state[_N_ENTRIES]) + n_notes, int(self._state[_N_LISTED]) + n_notes
            entries, lists = self._queue[:-1], self._queue[-1]
            if n_entries > len(entries[0]):
                entries = tuple(_longer(array, n_entries) for array in entries)
            self._queue = (*entries, _longer(lists, n_listed) if n_listed > len(lists) else lists)
