"""Text infilling: pairs whose sources lose spans of tokens, anew in every epoch."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attnkit.data.pairs import Pairs, Ragged
from attnkit.data.permutation import Bools, FeistelPermutation, Floats, Ids, uniform_per_token
from attnkit.data.store import ranges
from attnkit.text.config import InfillingConfig


class Spans(NamedTuple):
    """Masked spans of a batch, row by row."""

    owner: Ids  #: (n,) index of the row in the batch
    sizes: Ids  #: (n,) masked tokens; 0: the mask is inserted


class Infilling:
    """Text infilling as a pure function of (seed, epoch, row).

    Source: Lewis et al. 2020, section 2.2. Spans do not overlap, and all arrangements of the spans of a row are equally
    probable; as spans lie within the row, its ends are masked less often than its middle.
    """

    def __init__(self, config: InfillingConfig, mask: int, symbols: Sequence[int], longest: int) -> None:
        """Prepare the noise.

        Args:
            config: Share and lengths of masked spans.
            mask: Id that replaces each span.
            symbols: Ids that are never masked, such as tags of languages.
            longest: Most tokens of a corrupted row; beyond it, no mask is inserted.
        """
        self.config, self.mask, self.longest = config, mask, longest
        self._symbols = np.array(symbols, np.int64)

    def corrupt(self, ids: Ids, lengths: Ids, rows: Ids, key: tuple[int, int]) -> Ragged:
        """Return corrupted copies of concatenated rows, and the length of each copy.

        Args:
            ids: (n,) Tokens of all rows, concatenated.
            lengths: (B,) Length of each row.
            rows: (B,) Index of each row in the corpus.
            key: (seed, epoch).
        """
        owner = np.repeat(np.arange(len(rows)), lengths)  # (n,) the row of each token in the batch
        is_free = ~np.isin(ids, self._symbols)
        n_free = np.bincount(owner[is_free], minlength=len(rows))  # (B,)
        # Stochastic rounding: the expected share of masked tokens is exact in rows of any length.
        dither = FeistelPermutation("infill share", *key).uniform(rows)
        n_masked = np.floor(self.config.mask_prob * n_free + dither).astype(np.int64)
        spans = self._spans(n_masked, lengths, rows, key)
        n_spans = np.bincount(spans.owner, minlength=len(rows))
        # A slot is a token that is kept, or a span.
        n_slots = n_free - n_masked + n_spans
        slot_owner, places = np.repeat(np.arange(len(rows)), n_slots), ranges(np.zeros_like(n_slots), n_slots)
        coins = uniform_per_token("infill place", key, rows, slot_owner, places)
        order = np.lexsort((coins, slot_owner))  # the slots of each row at random: the first ones become its spans
        masks = order[places < n_spans[slot_owner]]
        widths = np.ones(len(slot_owner), np.int64)
        widths[masks] = spans.sizes
        starts = np.cumsum(widths) - widths  # free tokens of the batch before each slot
        filled = np.full(len(slot_owner), self.mask, np.int64)
        is_kept = np.ones(len(slot_owner), np.bool_)
        is_kept[masks] = False
        filled[is_kept] = ids[is_free][starts[is_kept]]
        if not is_free.all():
            filled = _with_symbols(ids, owner, is_free, (filled, slot_owner, starts))
        return filled, n_slots + lengths - n_free

    def _spans(self, n_masked: Ids, lengths: Ids, rows: Ids, key: tuple[int, int]) -> Spans:
        """Draw spans until they mask ``n_masked`` (B,) tokens; the last one is cut to fit."""
        # With a mean of 1, the least, so many draws are too few for about 1 of 10,000 short lines: there the last span
        # takes all that is left.
        n_draws = np.where(n_masked > 0, 2 * n_masked + 8, 0)
        owner = np.repeat(np.arange(len(rows)), n_draws)
        coins = uniform_per_token("infill length", key, rows, owner, ranges(np.zeros_like(n_draws), n_draws))
        sizes = np.searchsorted(_poisson_cdf(self.config.span_length), coins, side="right").astype(np.int64)
        is_last = np.zeros(len(owner), np.bool_)
        is_last[np.cumsum(n_draws)[n_draws > 0] - 1] = True
        sizes[is_last] = n_masked[owner[is_last]]
        before = np.cumsum(sizes) - sizes  # tokens masked by earlier spans, of the row below
        row_starts = np.cumsum(n_draws) - n_draws
        before -= before[row_starts[owner]]
        sizes = np.minimum(sizes, n_masked[owner] - before)
        drawn = before < n_masked[owner]
        owner, sizes = owner[drawn], sizes[drawn]
        # Inserted masks lengthen a row. A model has positions for a certain length only.
        excess = lengths - n_masked + np.bincount(owner, minlength=len(rows)) - self.longest
        inserted = np.flatnonzero(sizes == 0)
        rank = np.arange(len(inserted)) - np.searchsorted(owner[inserted], owner[inserted])  # within the row
        kept = np.ones(len(owner), np.bool_)
        kept[inserted[rank < excess[owner[inserted]]]] = False
        return Spans(owner[kept], sizes[kept])


class InfilledPairs(Pairs):
    """Pairs with corrupted sources; satisfies ``loader.Dataset``.

    The noise of a pair depends only on seed, epoch and its number. ``lengths``, from which batches are planned, are
    those of the whole lines.
    """

    def __init__(self, pairs: Pairs, infilling: Infilling) -> None:
        super().__init__(pairs.src, pairs.tgt, pairs.corpora, pairs.dropped)
        self._pairs, self._infilling = pairs, infilling

    def rows(self, indices: Ids, seed: int, epoch: int) -> tuple[Ragged, Ragged]:
        src, tgt = self._pairs.rows(indices, seed, epoch)
        return self._infilling.corrupt(*src, indices, (seed, epoch)), tgt

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        return self._pairs.counts(indices, seed, epoch)


def _with_symbols(ids: Ids, owner: Ids, is_free: Bools, slots: tuple[Ids, Ids, Ids]) -> Ids:
    """Return the ids of slots with the symbols of their rows in place.

    Each symbol stays before the token that it was before. Slots are their ids, their rows, and the numbers of free
    tokens before them in the batch.
    """
    filled, slot_owner, starts = slots
    symbols = np.flatnonzero(~is_free)
    owners = np.concatenate([owner[symbols], slot_owner])
    before = np.concatenate([np.cumsum(is_free)[symbols], starts])
    is_slot = np.arange(len(owners)) >= len(symbols)
    return np.concatenate([ids[symbols], filled])[np.lexsort((is_slot, before, owners))]


@functools.cache
def _poisson_cdf(mean: float) -> Floats:
    """Return P(X <= k) of a Poisson distribution for k = 0, 1, … up to 1 - 2**-33."""
    term = total = math.exp(-mean)
    found = [total]
    while total < 1 - 2**-33:
        term *= mean / len(found)
        total += term
        found.append(total)
    return np.array(found)
