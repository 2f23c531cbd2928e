"""Restrict a search to a list of words per sentence; logits are computed for their union only.

In the search a word is its place in the union, which is in the order of ids and starts with padding, begin and end: so
ties are broken as they are over the whole vocabulary. What a sentence may not use has probability 0 for it, whatever
its batch mates use. Letters: B sentences, K beams, M words of the union.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import SourceBatch, Sources
from attnkit.decoding.hypotheses import Hypothesis
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID

ROUND = 512  #: multiple to which the number of words of a batch is rounded up


class BatchShortlist:
    """The words of a batch. Probabilities are shared out among those that a sentence may use."""

    def __init__(self, own: Sequence[NDArray[np.int64]], device: torch.device) -> None:
        """Take the ids that each sentence may use, ascending, one at least."""
        usable = np.zeros((len(own), 1 + max([EOS_ID, *(int(ids[-1]) for ids in own)])), bool)  # (B, ids)
        for row, ids in zip(usable, own, strict=True):
            row[ids] = True
        inside: NDArray[np.bool_] = np.any(usable, 0)
        inside[[PAD_ID, BOS_ID, EOS_ID]] = True
        # A product of new widths is compiled first, which costs as much as many products: so the union is filled up to
        # a size that recurs.
        missing = -int(inside.sum()) % ROUND
        inside[np.flatnonzero(~inside)[:missing]] = True
        union = np.flatnonzero(inside)
        barred = ~usable[:, None, union]  # (B, 1, M), the same for all beams
        self.words = torch.from_numpy(union).to(device)
        """(M,): the ids of the union, ascending."""
        self._barred = torch.from_numpy(barred).to(device)
        self._ids: list[int] = union.tolist()

    def mask_unlisted(self, logits: Tensor) -> Tensor:
        """Set to -inf, in place, the logits (B, K, M) of words that a sentence may not use."""
        return logits.masked_fill_(self._barred, -torch.inf)

    def select_rows(self, rows: Tensor) -> None:
        """Drop all sentences but the given rows (n,)."""
        self._barred = self._barred[rows]

    def map_to_full_vocab(self, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Return hypotheses of places in the union as hypotheses of ids."""
        return [[replace(one, ids=[self._ids[place] for place in one.ids]) for one in own] for own in found]


def apply_shortlist(
    sources: Sources, batch: SourceBatch, config: SearchConfig
) -> tuple[BatchShortlist | None, SourceBatch, SearchConfig]:
    """Return the shortlist of a batch, and batch and settings in its terms; None and both as they are without one.

    Raises:
        ValueError: There is not one list of ids for each sentence, or an id is below 0.
    """
    if sources.allowed is None:
        return None, batch, config
    if len(sources.allowed) != len(batch.limits):
        raise ValueError(
            f"{len(sources.allowed)} shortlists for {len(batch.limits)} sentences; one per sentence is needed"
        )
    prefixes = [[]] * len(batch.limits) if batch.prefix is None else batch.prefix.tolist()
    own = []
    for ids, prefix in zip(sources.allowed, prefixes, strict=True):
        if len(ids) and int(min(ids)) < 0:
            raise ValueError("a shortlist holds ids from 0 on")
        # A sentence must be able to end, and to follow its prefix.
        forced = np.array([EOS_ID, *(id for id in prefix if id != PAD_ID)], np.int64)
        own.append(np.unique(np.concatenate([ids, forced])).astype(np.int64))
    shortlist = BatchShortlist(own, batch.device)
    if batch.prefix is not None:
        # Padding, BOS and EOS keep their ids: they come first in the union.
        batch = replace(batch, prefix=torch.searchsorted(shortlist.words, batch.prefix))
    if config.n_words is not None:
        # The union is ascending: unused ids are at its end here as well.
        n_words = int((shortlist.words < config.n_words).sum())
        config = config.model_copy(update={"n_words": n_words})
    return shortlist, batch, config
