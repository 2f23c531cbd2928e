"""Subsampled words of a piece of text, and the window of each.

Whether a word stays, and how wide its window is, depends on the epoch's key and its position alone. So the bounds of
pieces change nothing. Windows are formed over the words that stayed, within a line, and reach beyond the piece.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnkit.kernels.jit import inline
from attnkit.kernels.sampling import below, number, stays


@inline
def windows(text: Any, work: Any, knobs: Any, keep: Any) -> Any:
    """Return (words, at, left, right, first, last) for a piece.

    words[first:last] are its centre words; around them stand those that their windows reach. The context of words[i] is
    words[i - left[i] : i] and words[i + 1 : i + 1 + right[i]]; at[i] is its position in the text.
    """
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
        for i in range(i, min(end, b)):  # noqa: B020 (goes on where the last line ended)
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
