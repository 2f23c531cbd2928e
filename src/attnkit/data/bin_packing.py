"""Pieces into rows that are full: by looking ahead, where best fit leaves rows with less room than any piece needs.

As in captions, of which the shortest are rare. Pieces of one size are alike, so a row is a pattern: how many pieces of
each size it holds. The largest piece that is left opens it, and the others are chosen such that it is as full as can
be; then as many rows of that pattern are made as there are pieces for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_AHEAD = 256
"""Tokens of a row that are filled by looking ahead; before, the largest piece that fits is taken."""


def pack_with_lookahead(sizes: npt.NDArray[np.int32], room: int) -> npt.NDArray[np.int32]:
    """Return the row of each piece, rows being numbered as they are made.

    >>> fill_rows(np.array([6, 5, 5, 4, 4, 4], np.int32), 14).tolist()
    [0, 1, 1, 0, 0, 1]
    """
    counts = np.bincount(sizes, minlength=room + 1).tolist()
    order = np.argsort(sizes, kind="stable")
    ends = np.cumsum(counts).tolist()
    """Of each size, behind the last of its pieces that are left, in their order."""
    rows = np.empty(len(sizes), np.int32)
    n_rows, largest = 0, room
    while largest:
        if not counts[largest]:
            largest -= 1
            continue
        pattern = _pattern(counts, largest, room)
        n_new = min(counts[size] // n for size, n in pattern.items())
        for size, n in pattern.items():
            taken = order[ends[size] - n * n_new : ends[size]]
            rows[taken] = n_rows + np.arange(n * n_new, dtype=np.int32) // n
            ends[size] -= n * n_new
            counts[size] -= n * n_new
        n_rows += n_new
    return rows


def _pattern(counts: list[int], largest: int, room: int) -> dict[int, int]:
    """Return how many pieces of each size make a row as full as can be that holds a piece of the largest size."""
    pattern = {largest: 1}
    left, size = room - largest, largest
    while left > _AHEAD and size:
        size = min(size, left)
        if counts[size] > pattern.get(size, 0):
            pattern[size] = pattern.get(size, 0) + 1
            left -= size
        else:
            size -= 1
    for size, n in _fullest(counts, pattern, min(left, _AHEAD)):
        pattern[size] = pattern.get(size, 0) + n
    return pattern


def _fullest(counts: list[int], taken: dict[int, int], room: int) -> list[tuple[int, int]]:
    """Return sizes, and how many of each, that fill a room best: the largest ones of those that do.

    Sums that can be reached are the bits of a number (subset sums, Bellman 1956).
    """
    reached, every = 1, (1 << (room + 1)) - 1
    steps: list[tuple[int, int, int]] = []
    for size in range(1, room + 1):
        available, n = min(counts[size] - taken.get(size, 0), room // size), 1
        while available > 0:
            n = min(n, available)
            steps.append((size, n, reached))
            reached |= (reached << (size * n)) & every
            available, n = available - n, 2 * n
    rest, found = reached.bit_length() - 1, []
    for size, n, before in reversed(steps):
        if size * n <= rest and before >> (rest - size * n) & 1:
            found.append((size, n))
            rest -= size * n
    return found
