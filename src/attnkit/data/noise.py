"""Noise for denoising auto-encoders: a pure function of (seed, epoch, row), computed for a batch at once.

Every token gets its coins from a keyed bijection of its row and of its place in it, so that they depend on nothing
else: neither on batch mates nor on ranks, on interruptions or on the version of a library.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attnkit.data.config import NoiseConfig
from attnkit.data.permutation import FeistelPermutation, Words

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Noise:
    """The noise of one epoch."""

    def __init__(self, config: NoiseConfig, seed: int, epoch: int) -> None:
        self.config = config
        self._key = (seed, epoch)

    def corrupt_tokens(self, ids: Ids, lengths: Ids, rows: Ids, blank: int) -> tuple[Ids, Ids]:
        """Return noisy copies of several rows laid end to end, and the length of each.

        Args:
            ids: (n,) the tokens of all rows.
            lengths: (B,) of each row.
            rows: (B,) number of each row in the corpus.
            blank: the id that masked tokens get.
        """
        config = self.config
        owner = np.repeat(np.arange(len(rows)), lengths)
        places = _places(lengths)
        numbers = rows[owner]
        if config.word_dropout:
            coins = self._coins("drop", numbers, places)
            kept = _kept(coins, owner, len(rows), config.word_dropout)
            ids, owner, places, numbers = ids[kept], owner[kept], places[kept], numbers[kept]
        else:
            ids = ids.copy()
        if config.mask_prob:
            ids[self._coins("mask", numbers, places) < config.mask_prob] = blank
        if config.shuffle_prob:
            moved = np.flatnonzero(self._coins("shuffle", numbers, places) < config.shuffle_prob)
            order = np.lexsort((self._coins("order", numbers[moved], places[moved]), owner[moved]))
            ids[moved] = ids[moved[order]]
        return ids, np.bincount(owner, minlength=len(rows)).astype(np.int64)

    def corrupt_vectors(
        self, vectors: npt.NDArray[np.float32], rows: Ids, mean: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.float32]:
        """Return copies of vectors (B, d), of the given rows, with masked numbers set to their column's mean (d,)."""
        n_rows, width = vectors.shape
        coins = self._coins("mask", np.repeat(rows, width), np.tile(np.arange(width), n_rows))
        return np.where(coins.reshape(n_rows, width) < self.config.mask_prob, mean, vectors)

    def _coins(self, purpose: str, rows: Ids, places: Ids) -> Floats:
        """Return a number in [0, 1) for each token, by its row and its place in it."""
        of_rows = FeistelPermutation(f"noise {purpose} row", *self._key).apply(_words(rows))
        return FeistelPermutation(f"noise {purpose} place", *self._key).apply(of_rows + _words(places)) / 2**32


def _words(numbers: Ids) -> Words:
    return numbers.astype(np.uint32)


def _places(lengths: Ids) -> Ids:
    """Return the place of each token in its row."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(int(lengths.sum())) - np.repeat(starts, lengths)


def _kept(coins: Floats, owner: Ids, n_rows: int, rate: float) -> npt.NDArray[np.bool_]:
    """Return which tokens stay: those of a coin of ``rate`` or more, of each row at least the one with the highest."""
    highest = np.zeros(n_rows)
    np.maximum.at(highest, owner, coins)
    kept: npt.NDArray[np.bool_] = (coins >= rate) | (coins == highest[owner])
    return kept
