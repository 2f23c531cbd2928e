"""Encoded pairs whose words are segmented anew in every epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from attnkit.data.pairs import Pairs, Ragged
from attnkit.data.permutation import FeistelPermutation, Ids
from attnkit.kernels.subwords import SubwordSampler


class Samplers(NamedTuple):
    """Segmentation of both sides."""

    src: SubwordSampler
    tgt: SubwordSampler


class SampledPairs(Pairs):
    """Pairs with random segmentation; satisfies ``loader.Dataset``.

    The segmentation of a pair depends only on seed, epoch and its number. ``lengths``, from which batches are planned,
    are those of the usual encoding.
    """

    def __init__(self, pairs: Pairs, samplers: Samplers) -> None:
        super().__init__(pairs.src, pairs.tgt, pairs.corpora, pairs.dropped)
        self._samplers = samplers

    def rows(self, indices: Ids, seed: int, epoch: int) -> tuple[Ragged, Ragged]:
        return self._sample("src", indices, seed, epoch), self._sample("tgt", indices, seed, epoch)

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        return {"nll": int(self._sample("tgt", indices, seed, epoch)[1].sum()) + len(indices)}  # an EOS each

    def _sample(self, side: str, indices: Ids, seed: int, epoch: int) -> Ragged:
        key = FeistelPermutation(f"subwords {side}", seed, epoch).apply(indices.astype(np.uint32))
        ids, lengths = getattr(self, side).gather(indices)
        sampler: SubwordSampler = getattr(self._samplers, side)
        return sampler.sample(ids, lengths, key.astype(np.uint64))
