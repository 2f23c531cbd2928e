"""Windows as in ``windows``, vectorised in numpy, for training in torch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels import sampling

Ints = NDArray[np.int64]
# Marked functions are compiled for numbers; here they get arrays, as plain Python.
_number, _below, _stays = (getattr(f, "py_func", f) for f in (sampling.number, sampling.below, sampling.stays))


def windows(
    text: tuple[Any, Ints], work: tuple[int, int, int], knobs: tuple[int, bool], keep: NDArray[np.uint32]
) -> tuple[NDArray[np.int32], Ints, Ints, Ints, int, int]:
    """Return (words, at, left, right, first, last) for (ids, starts), (a, b, key) and (window, dynamic).

    All are as ``kernels.windows`` has them, but that words, at, left and right hold no room that is not used.
    """
    (ids, starts), (a, b, key), (widest, dynamic) = text, work, knobs
    kept = _Kept(ids, keep, np.uint64(key))
    # Start of the piece's first line, and end of its last one.
    begin = int(starts[np.searchsorted(starts, a, side="right") - 1]) if a < b else a
    end = int(starts[np.searchsorted(starts, b, side="left")]) if a < b else b
    before, own, after = kept.last(begin, a, widest), kept.between(a, b), kept.first(b, end, widest)
    at = np.concatenate([before, own, after])  # positions of kept words, (n,)
    line = np.searchsorted(starts, at, side="right")
    places = np.arange(len(at))
    width = 1 + _below(kept.bits(at), widest) if dynamic else np.full(len(at), widest)
    # Kept words are sorted by line: searchsorted gives the first and the last of each line.
    left = np.minimum(width, places - np.searchsorted(line, line, side="left"))
    right = np.minimum(width, np.searchsorted(line, line, side="right") - 1 - places)
    return ids[at].astype(np.int32), at, left, right, len(before), len(before) + len(own)


class _Kept:
    """The positions of words that stay."""

    def __init__(self, ids: Any, keep: NDArray[np.uint32], key: np.uint64) -> None:
        self.ids, self.keep, self.key = ids, keep, key

    def bits(self, at: Ints) -> NDArray[np.uint64]:
        """Return the random bits of positions."""
        found: NDArray[np.uint64] = _number(self.key, at.astype(np.uint64))
        return found

    def between(self, begin: int, end: int) -> Ints:
        at: Ints = np.arange(begin, end)
        kept: Ints = at[_stays(self.bits(at), self.keep[self.ids[begin:end]])]
        return kept

    def first(self, begin: int, end: int, n: int) -> Ints:
        """Return the first n of a stretch, looked for in steps: a line may be very long."""
        found, step = np.empty(0, np.int64), 4 * n
        while len(found) < n and begin < end:
            found = np.concatenate([found, self.between(begin, min(begin + step, end))])
            begin, step = begin + step, 2 * step
        return found[:n]

    def last(self, begin: int, end: int, n: int) -> Ints:
        found, step = np.empty(0, np.int64), 4 * n
        while len(found) < n and begin < end:
            found = np.concatenate([self.between(max(begin, end - step), end), found])
            end, step = end - step, 2 * step
        return found[max(0, len(found) - n) :]
