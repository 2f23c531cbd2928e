"""Noise for denoising auto-encoders, a pure function of (seed, epoch, row); lines with their noisy copies."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from attnkit.data.config import NoiseConfig
from attnkit.data.pairs import PairBatch, make_batch
from attnkit.data.permutation import FeistelPermutation
from attnkit.data.store import Store, ranges
from attnkit.protocols import UNK_ID

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
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
        places = ranges(np.zeros_like(lengths), lengths)  # of each token in its row
        numbers = rows[owner]
        if config.word_dropout:
            coins = self._coins("drop", numbers, places)
            highest = np.zeros(len(rows))
            np.maximum.at(highest, owner, coins)
            # The token with the highest coin of its row stays in any case: no row becomes empty.
            kept = (coins >= config.word_dropout) | (coins == highest[owner])
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
        # Keyed by row and position: independent of batch mates, ranks and interruptions.
        of_rows = FeistelPermutation(f"noise {purpose} row", *self._key).apply(rows.astype(np.uint32))
        mixed = of_rows + places.astype(np.uint32)
        return FeistelPermutation(f"noise {purpose} place", *self._key).apply(mixed) / 2**32


class LineDataset:
    """Rows of a store as an auto-encoder sees them; satisfies ``loader.Dataset``."""

    def __init__(self, store: Store, noise: NoiseConfig) -> None:
        self.store = store
        self.noise = noise

    def __len__(self) -> int:
        return len(self.store)

    @property
    def fingerprint(self) -> str:
        """Hash that changes with any id and any border between lines."""
        return self.store.fingerprint

    @functools.cached_property
    def lengths(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """(n,) twice the length of each line with its end symbol; noise may leave less of what goes in."""
        lengths = self.store.lengths
        lengths += 1
        return lengths, lengths

    def batch(self, indices: npt.NDArray[np.int64], seed: int, epoch: int) -> PairBatch:
        """Return the lines at ``indices`` as targets, with the noise of this epoch as sources."""
        clean = self.store.gather(indices)
        if not self.noise.any:
            return make_batch(clean, clean)
        return make_batch(Noise(self.noise, seed, epoch).corrupt_tokens(*clean, indices, UNK_ID), clean)

    def clean(self, indices: npt.NDArray[np.int64]) -> PairBatch:
        """Return the lines at ``indices`` as targets and as sources without noise."""
        rows = self.store.gather(indices)
        return make_batch(rows, rows)

    def counts(self, indices: npt.NDArray[np.int64], seed: int = 0, epoch: int = 0) -> Mapping[str, int]:
        """Return the number of tokens of these lines, end symbols included."""
        return {"nll": int(self.lengths[1][indices].sum())}
