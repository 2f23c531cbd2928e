"""BPE-dropout of encoded lines (Provilkov et al. 2020, algorithm 1).

Each word is spelled out in the pieces that all merges start from. Then the pair with the lowest rank is merged, again
and again, but of the pairs that could be merged each is left out with a probability, anew in every round; a round in
which all are left out ends the word. Without numba the loop is plain Python, with the same results.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled, inline

CONTINUES, STARTS_WORD, IS_WORD = range(3)  #: roles of entries: inside a word, at its start, a word that stays whole
MAX_PIECES = 256  #: pieces of a word above which it keeps its encoding, since a word takes time quadratic in them


@inline
def _find(key: Any, keys: Any) -> Any:
    """Return the place of a pair in the table, or a free one if it is not merged."""
    mask = np.uint64(len(keys) - 1)
    # The lower half of a product of 32-bit numbers, so that plain Python does not overflow.
    mixed = ((key & np.uint64(0xFFFFFFFF)) * np.uint64(0x9E3779B1)) ^ ((key >> np.uint64(32)) * np.uint64(0x85EBCA77))
    place = (mixed ^ (mixed >> np.uint64(15))) & mask
    while keys[place] != np.uint64(0) and keys[place] != key:
        place = (place + np.uint64(1)) & mask
    return place


@inline
def _mix(number: Any) -> Any:
    """Return a pseudo-random 32-bit number (lowbias32, Wellons 2018)."""
    low = np.uint64(0xFFFFFFFF)
    number ^= number >> np.uint64(16)
    number = (number * np.uint64(0x7FEB352D)) & low
    number ^= number >> np.uint64(15)
    number = (number * np.uint64(0x846CA68B)) & low
    return number ^ (number >> np.uint64(16))


@inline
def _merge_word(word: Any, size: int, merges: Any, threshold: Any, key: Any, n_drawn: Any) -> Any:
    """Merge the pieces of a word in place; return their number and that of all draws."""
    keys, ranks, merged = merges
    while True:
        best, at, joined = np.int64(1) << np.int64(62), -1, 0
        for i in range(size - 1):
            place = _find(((np.uint64(word[i]) << np.uint64(32)) | np.uint64(word[i + 1])) + np.uint64(1), keys)
            if keys[place] == np.uint64(0):
                continue
            draw = _mix(key ^ _mix(n_drawn & np.uint64(0xFFFFFFFF)))
            n_drawn += np.uint64(1)
            if draw >= threshold and ranks[place] < best:
                best, at, joined = np.int64(ranks[place]), i, merged[place]
        if at < 0:
            return size, n_drawn
        word[at] = joined
        for i in range(at + 1, size - 1):
            word[i] = word[i + 1]
        size -= 1


def _sample(text: Any, entries: Any, merges: Any, row_keys: Any, threshold: Any, longest: int, out: Any) -> int:
    """Write the sampled ids and lengths of all rows to ``out``; return their number."""
    ids, lengths = text
    starts, pieces, roles = entries
    new_ids, new_lengths, word = out
    n, end = 0, 0
    for row in range(len(lengths)):
        key = np.uint64(row_keys[row])
        n_drawn = np.uint64(0)
        first, begin = n, end
        end = begin + lengths[row]
        i = begin
        while i < end:
            stop, size = i, 0
            while stop < end and (stop == i or (roles[ids[stop]] == CONTINUES and roles[ids[i]] != IS_WORD)):
                for k in range(starts[ids[stop]], starts[ids[stop] + 1]):
                    if size < MAX_PIECES:
                        word[size] = pieces[k]
                    size += 1
                stop += 1
            if size <= MAX_PIECES and roles[ids[i]] != IS_WORD:
                size, n_drawn = _merge_word(word, size, merges, threshold, key, n_drawn)
                for k in range(size):
                    new_ids[n] = word[k]
                    n += 1
            else:
                for k in range(i, stop):
                    new_ids[n] = ids[k]
                    n += 1
            i = stop
        if n - first > longest:
            n = first
            for k in range(begin, end):
                new_ids[n] = ids[k]
                n += 1
        new_lengths[row] = n - first
    return n


@cache
def compiled_loop() -> Callable[..., int] | None:
    """Return the compiled loop, or None without numba."""
    wide, words, keys, bytes_ = (np.empty(1, kind) for kind in (np.int64, np.int32, np.uint64, np.uint8))
    arguments = ((wide, wide), (wide, words, bytes_), (keys, words, words), keys, np.uint64(0), 1, (wide, wide, wide))
    loop: Callable[..., int] | None = compiled(_sample, arguments, ("subwords", "compiled_loop"))
    return loop


class Merges:
    """Merges of a vocabulary, and the pieces from which they make its entries."""

    def __init__(self, pieces: list[list[int]], roles: list[int], merges: list[tuple[int, int, int]]) -> None:
        """Build the tables.

        Args:
            pieces: (V) ids from which merges make each entry; its own id where none do.
            roles: (V) ``CONTINUES``, ``STARTS_WORD`` or ``IS_WORD``.
            merges: Ids (left, right, merged) in the order in which they apply.
        """
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        flat = np.fromiter((id for one in pieces for id in one), np.int32, int(sizes.sum()))
        self._entries = np.concatenate([[0], np.cumsum(sizes)]), flat, np.array(roles, np.uint8)
        self._n_pieces = sizes
        keys = np.zeros(1 << (2 * len(merges) + 2).bit_length(), np.uint64)
        ranks, merged = np.zeros(len(keys), np.int32), np.zeros(len(keys), np.int32)
        for rank, (left, right, joined) in enumerate(merges):
            key = np.uint64((left << 32 | right) + 1)
            place = int(_find(key, keys))
            keys[place], ranks[place], merged[place] = key, rank, joined
        self._merges = keys, ranks, merged

    def sample(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int64], keys: NDArray[np.uint64], dropout: float, longest: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows encoded anew, and the length of each.

        Args:
            ids: (N,) entries of all rows, concatenated.
            lengths: (B,) length of each row.
            keys: (B,) keys below 2**32 of the pseudo-random numbers of each row.
            dropout: Probability that a merge is left out.
            longest: Length above which a row keeps its encoding.
        """
        loop = compiled_loop() or _sample
        new_ids = np.empty(int(self._n_pieces[ids].sum()), np.int64)
        new_lengths, word = np.empty_like(lengths), np.empty(MAX_PIECES, np.int64)
        out = new_ids, new_lengths, word
        threshold = np.uint64(round(dropout * 2**32))
        n = loop((ids, lengths), self._entries, self._merges, keys, threshold, longest, out)
        return new_ids[:n], new_lengths
