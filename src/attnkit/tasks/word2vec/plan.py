"""Where a pass over the text is cut into pieces, and what each of them trains with. Pure functions of numbers.

A piece owns the words at the positions [a, b). Everything random in it comes from the seed, the epoch and its own
number, so that it is a pure function of the weights it begins with: by counting pieces a run goes on as it was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PIECE = 1 << 16
"""Words of a piece, at most, where all threads share one set of matrices."""
LEAST = 1 << 10
"""Words of a piece of a short text, and of one whose words take long."""
ROUND = 200_000
"""Words between two joins of the copies of a deterministic run."""


def chunk_boundaries(offsets: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return (n + 1,) where the pieces of a text begin, and its end: whole lines where these are short enough.

    >>> borders(np.array([0, 3, 6, 16]), 4)
    array([ 0,  3,  6, 10, 14, 16])
    """
    total, place, found = int(offsets[-1]), 0, [0]
    while place < total:
        end = min(place + most, total)
        if end < total:
            line = int(offsets[np.searchsorted(offsets, end, side="right") - 1])
            end = line if line > place else end
        found.append(end)
        place = end
    return np.array(found, np.int64)


def piece_size(n_words: int, copies: int, slow: bool = False) -> int:
    """Return the most words of a piece; ``copies`` is how many are trained and joined, 1 where there is one for all.

    Without copies it knows no threads: a run may go on with more of them. Where words are ``slow`` a piece has few: it
    is what a stop has to wait for.
    """
    if slow:
        return LEAST
    if copies == 1:
        return min(PIECE, max(LEAST, -(-n_words // 64)))
    return max(LEAST, min(ROUND // copies, -(-n_words // (8 * copies))))


@dataclass(frozen=True)
class LinearDecay:
    """A learning rate that falls in a straight line over the whole run."""

    begin: float
    end: float
    total: int
    """Words of all epochs, or whatever is counted."""

    def at(self, done: int) -> float:
        """Return the rate after so many of them."""
        return self.begin + (self.end - self.begin) * (done / self.total if self.total else 1.0)
