"""Subsampled words of a piece of text and the window of each, compiled and in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels import sampling
from attnkit.kernels.jit import inline
from attnkit.kernels.sampling import below, number, stays


@inline
def windows(text: Any, work: Any, knobs: Any, keep: Any) -> Any:
    """Return (words, at, left, right, first, last) for a piece.

    words[first:last] are its centre words; around them stand those that their windows reach. The context of words[i] is
    words[i - left[i] : i] and words[i + 1 : i + 1 + right[i]]; at[i] is its position in the text.
    """
    # work is (begin, end, key) of the piece, knobs (window, dynamic).
    ids, starts = text
    a, b, key = work[0], work[1], np.uint64(work[2])
    widest, dynamic = knobs[0], knobs[1]
    # Room for a full window on each side of the piece.
    words, at = np.empty(b - a + 2 * widest, np.int32), np.empty(b - a + 2 * widest, np.int64)
    left, right = np.zeros(len(words), np.int32), np.zeros(len(words), np.int32)
    # "right": of empty lines at the same position the last one counts.
    line = np.searchsorted(starts, a, side="right") - 1
    begin, i = widest, a - 1
    # Words before the piece in the same line, from right to left, up to the widest window.
    while begin > 0 and i >= starts[line]:
        if stays(number(key, np.uint64(i)), keep[ids[i]]):
            begin -= 1
            words[begin], at[begin] = ids[i], i
        i -= 1
    n, i, last = widest, a, widest
    while i < b:
        end = starts[line + 1]
        centre = n
        for i in range(i, min(end, b)):  # noqa: B020 (continues where the last line ended)
            # One number per word: the upper half decides whether it stays, the lower one its width.
            bits = number(key, np.uint64(i))
            if stays(bits, keep[ids[i]]):
                words[n], at[n] = ids[i], i
                right[n] = 1 + below(bits, widest) if dynamic else widest
                n += 1
        i, last = min(end, b), n
        if end > b:
            n = _beyond(text, (b, end, key, last + widest), keep, (words, at, n))
        for k in range(centre, last):
            # Widths were drawn before the ends of the line were known: cut to it now.
            width = right[k]
            left[k], right[k] = min(width, k - begin), min(width, n - 1 - k)
        begin, line = n, line + 1
    return words, at, left, right, widest, last


@inline
def _beyond(text: Any, span: Any, keep: Any, found: Any) -> Any:
    """Add the words that stay after the piece's end, up to the end of the line or of the window."""
    ids, _ = text
    i, end, key, full = span
    words, at, n = found
    while n < full and i < end:
        if stays(number(key, np.uint64(i)), keep[ids[i]]):
            words[n], at[n] = ids[i], i
            n += 1
        i += 1
    return n


Ints = NDArray[np.int64]
# Marked functions are compiled for numbers; here they get arrays, as plain Python.
_number, _below, _stays = (getattr(f, "py_func", f) for f in (sampling.number, sampling.below, sampling.stays))


def windows_in_numpy(
    text: tuple[Any, Ints], work: tuple[int, int, int], knobs: tuple[int, bool], keep: NDArray[np.uint32]
) -> tuple[NDArray[np.int32], Ints, Ints, Ints, int, int]:
    """Return (words, at, left, right, first, last) for (ids, starts), (a, b, key) and (window, dynamic).

    All are as ``windows`` has them, but that words, at, left and right hold no room that is not used.
    """
    (ids, starts), (a, b, key), (widest, dynamic) = text, work, knobs
    # The same random numbers as the loop: results are equal.
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
