"""Encoded lines, each the target of its own noisy copy: the batches of a sequence auto-encoder."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from attnkit.data.config import NoiseConfig
from attnkit.data.noise import Noise
from attnkit.data.pairs import PairBatch, make_batch
from attnkit.data.store import Store
from attnkit.protocols import UNK_ID


class LineDataset:
    """Rows of a store as an auto-encoder sees them; satisfies ``loader.Dataset``."""

    def __init__(self, store: Store, noise: NoiseConfig) -> None:
        self.store = store
        self.noise = noise

    def __len__(self) -> int:
        return len(self.store)

    @property
    def fingerprint(self) -> str:
        """Changes with any id and any border between lines."""
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
        """Return how many tokens these lines have, their ends included."""
        return {"nll": int(self.lengths[1][indices].sum())}
