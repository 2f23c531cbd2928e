"""Cosines of queries with all rows, and the best of them, block by block over rows that may be mapped.

Letters: V rows, D numbers of a row, Q queries.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnkit.formats.word_vectors.table import Floats, Rows, blocks, not_finite, rows_at

Longs = NDArray[np.int64]


class Index:
    """Rows with their lengths, which are computed the first time that a block is read."""

    def __init__(self, rows: Rows, name: str) -> None:
        self.rows = rows
        self.name = name
        """For messages."""
        self._norms = np.full(len(rows), np.nan, np.float32)

    def norms(self) -> Floats:
        """Return the length (V,) of every row. Raises ``DataError`` for one that is not finite."""
        if np.isnan(self._norms).any():
            for start, block in blocks(self.rows):
                self._norms_of(start, block)
        return self._norms

    def unit(self, numbers: Longs) -> Floats:
        """Return some rows (n, D) with length 1, or 0 where they have none. Raises ``DataError`` as ``norms``."""
        rows = rows_at(self.rows, numbers)
        norms = norms_of(rows, numbers, self.name)
        return scaled(rows, norms)

    def cosines(self, queries: Floats, stop: int | None = None) -> Floats:
        """Return (Q, stop) cosines of queries (Q, D), of length 1, with the first rows; 0 with a row of zeros.

        Raises:
            DataError: a row is not finite.
        """
        stop = len(self.rows) if stop is None else min(stop, len(self.rows))
        found = np.empty((len(queries), stop), np.float32)
        for start, block in blocks(self.rows):
            if start >= stop:
                break
            block = block[: stop - start]
            norms = self._norms_of(start, block)
            np.divide(queries @ block.T, np.where(norms > 0, norms, 1), out=found[:, start : start + len(block)])
        return found

    def _norms_of(self, start: int, block: Floats) -> Floats:
        held = self._norms[start : start + len(block)]
        if np.isnan(held).any():
            held[:] = norms_of(block, np.arange(start, start + len(block)), self.name)
        return held


def norms_of(rows: Floats, numbers: Longs, name: str) -> Floats:
    """Return the lengths of rows. Raises ``DataError`` naming the first of these numbers whose row is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        found: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    odd = np.flatnonzero(~np.isfinite(found) | (found == 0))
    if len(odd):  # squares of 32 bits may be too large or too small where the numbers are neither
        wide = rows[odd].astype(np.float64)
        found[odd] = np.sqrt((wide * wide).sum(1))
        bad = np.flatnonzero(~np.isfinite(found))
        if len(bad):
            raise not_finite(name, int(numbers[bad[0]]))
    return found


def scaled(rows: Floats, norms: Floats) -> Floats:
    """Return rows divided by their lengths; those of length 0 stay."""
    return (rows / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32, copy=False)


def unit_vector(vector: Floats) -> Floats:
    """Return a vector (D,) of the same direction and length 1; zeros stay."""
    length = float(np.sqrt(np.square(vector, dtype=np.float64).sum()))
    return (vector / length if length else vector).astype(np.float32)


def best(scores: Floats, n: int, excluded: list[int]) -> Longs:
    """Return the places of the ``n`` highest scores, the highest first, the first place among equals."""
    scores = scores.copy()
    scores[[place for place in excluded if place < len(scores)]] = -np.inf
    n = min(n, int(np.isfinite(scores).sum()))
    if n < 1:
        return np.empty(0, np.int64)
    least = np.partition(scores, len(scores) - n)[len(scores) - n]
    places = np.flatnonzero(scores >= least)
    return places[np.lexsort((places, -scores[places]))][:n]
