"""Where the passages of packed rows lie, and how the tokens of each see their own passage alone.

A row that is one passage takes attention without any mask; rows of several take a block-diagonal one. All rows of a
batch take one path where that is faster: a kernel for passages of many lengths, or where scores are computed plainly
one mask that hides nothing in rows of one passage. Each gives what a passage gives in a row of its own. Knows no words.

Letters: B rows, T tokens of a row, H heads, d head width, D model width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.multihead import HeadGroups, Mix, attend_within
from attnkit.models.attention.scaled_dot_product import AttentionScope, prefers_matmul, supports_varlen
from attnkit.models.language_config import LanguageConfig
from attnkit.models.positions import AlibiBias, LearnedPositions, Rotation, distances, sinusoids

AttentionWeights = list[Tensor]
"""The weights (B, H, T, S) of one layer after another."""


@dataclass(frozen=True)
class PackedLayout:
    """What the tokens of a batch may see and where they stand. The rows that are one passage come first."""

    n_rows: int
    n_unmixed: int
    """Rows 0..n_unmixed are one passage each, from end to end."""
    mask: Tensor | None = None
    """Of the other rows: bool, True = may attend, broadcastable to (B - n_whole, H, T, T)."""
    positions: Tensor | None = None
    """(B, T) int64, where each token occurs in its passage; None where all count from the row's beginning."""
    bounds: Tensor | None = None
    """(P + 1,) int32, where each passage begins in the flattened rows, and where the last one ends; None if unknown."""

    @staticmethod
    def unpacked(n_rows: int) -> PackedLayout:
        """Return the layout of rows without padding that are one passage each."""
        return PackedLayout(n_rows, n_rows)

    @staticmethod
    def padded(real: Tensor) -> PackedLayout:
        """Return the layout of rows that are one passage each, real (B, T) being True at its tokens, padding behind."""
        if bool(real.all()):
            return PackedLayout.unpacked(len(real))
        return PackedLayout(len(real), 0, real[:, None, None, :])

    @staticmethod
    def packed(n_whole: int, passages: Tensor, bounds: Tensor | None = None) -> PackedLayout:
        """Return the layout of rows of several passages.

        Args:
            n_whole: rows at the beginning that are one passage each.
            passages: (B, T) int, the number of each token's passage; neighbours of one number are one passage, and
                padding is a passage too.
            bounds: as ``PackedLayout`` has it, if it is known: to find it on an accelerator means to wait for it.
        """
        n_rows, length = passages.shape  # (B, T)
        if n_whole == n_rows:
            return PackedLayout.unpacked(n_rows)
        mixed = passages[n_whole:]
        mask = (mixed[:, :, None] == mixed[:, None, :])[:, None]  # (rows, 1, T, T): block diagonal
        at = torch.arange(length, device=passages.device)
        # True at the first token of each passage.
        begins = F.pad(passages[:, 1:] != passages[:, :-1], (1, 0), value=True)
        first = torch.where(begins, at, 0).cummax(dim=1).values  # (rows, T): where each token's passage starts
        return PackedLayout(n_rows, n_whole, mask, at - first, bounds)

    def to(self, device: torch.device | str) -> PackedLayout:
        """Return the layout on another device."""
        mask, places, bounds = (
            None if part is None else part.to(device, non_blocking=True)
            for part in (self.mask, self.positions, self.bounds)
        )
        return PackedLayout(self.n_rows, self.n_unmixed, mask, places, bounds)


def _self_visible(layout: PackedLayout) -> bool:
    """Return whether no token sees nothing: a bias would make such a row NaN. In rows with padding one may."""
    return layout.mask is None or layout.mask.shape[-2] > 1


class PositionEmbedding(nn.Module):
    """The vectors of positions that are added to words; zeros are not added where the model has none."""

    def __init__(self, config: LanguageConfig) -> None:
        super().__init__()
        # Rotary positions and ALiBi act inside attention.
        self.sinusoidal = config.positions == "sinusoidal"
        learned = config.positions == "learned"
        self.table = LearnedPositions(config.max_length, config.d_model) if learned else None
        if self.table is not None:
            # BERT's and GPT-2's standard deviation, not that of translation models.
            nn.init.normal_(self.table.table, std=0.02)

    def forward(self, x: Tensor, places: Tensor | None) -> Tensor:
        """Return x (B, T, D) with its positions: 0, 1, ..., or places (B, T)."""
        if not self.sinusoidal and self.table is None:
            return x
        # The table is read once and indexed: sinusoids are never computed per packed row.
        n = x.shape[1]
        rows = sinusoids(0, n, like=x) if self.table is None else self.table(0, n)
        return x + (rows if places is None else F.embedding(places, rows))

    def at(self, x: Tensor, place: int) -> Tensor:
        """Return x (B, K, D) whose rows all stand at one position."""
        if not self.sinusoidal and self.table is None:
            return x
        return x + (sinusoids(place, place + 1, like=x) if self.table is None else self.table(place, place + 1))


class SelfAttentionContext(nn.Module):
    """How the tokens of a passage see each other, the same in all layers: bias, rotation, causality."""

    def __init__(self, config: LanguageConfig, causal: bool) -> None:
        super().__init__()
        # Everything that all layers share is computed once per pass.
        self.causal, self.dropout = causal, config.attention_dropout
        self.rotary = config.positions == "rotary"
        self.d_head = config.d_model // config.n_heads
        self.bias = AlibiBias(config.n_heads) if config.positions == "alibi" else None
        self.plain = config.plain_attention

    def forward(self, x: Tensor, layout: PackedLayout, seen: AttentionWeights | None = None) -> Mix:
        """Return the mix of one pass over x (B, T, D); with a list, each layer's weights are added to it."""
        bias = None if self.bias is None else self.bias(distances(x.shape[1], x.device))  # (H, T, T)
        dropout = self.dropout if self.training else 0.0
        n_whole = layout.n_unmixed
        ragged = self.plain and self.bias is None and seen is None and supports_varlen(x, self.d_head, dropout)
        if layout.bounds is not None and ragged:
            together, n_whole = AttentionScope(None, self.causal, None, layout.bounds), 0
        elif self.plain and prefers_matmul(x, x.shape[1] ** 2) and _self_visible(layout):
            # One cheap bias for all rows costs less than to part whole rows from mixed ones and join them again.
            together, n_whole = AttentionScope(None, False, self._as_bias(x, layout, bias)), 0
        else:
            together = AttentionScope(layout.mask, self.causal, bias)
        alone = AttentionScope(None, self.causal, bias)
        # Positions restart with every passage, so packed and unpacked rows give equal scores.
        turn = self.rotation(0, x.shape[1], x, layout.positions) if self.rotary else None

        def mix(heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            parts = [query, keys, values] if turn is None else [turn(query), turn(keys), values]
            if n_whole == layout.n_rows or not n_whole:
                return attend_within(together if not n_whole else alone, dropout, seen)(heads, *parts)
            found: tuple[AttentionWeights | None, AttentionWeights | None] = (None, None) if seen is None else ([], [])
            # Split, not sliced: the gradient of two slices is two full tensors and their sum.
            sizes = [n_whole, layout.n_rows - n_whole]
            sides = zip(*(torch.split(part, sizes) for part in parts), strict=True)
            first = attend_within(alone, dropout, found[0])(heads, *next(sides))
            rest = attend_within(together, dropout, found[1])(heads, *next(sides))
            if seen is not None and found[0] and found[1]:
                seen.append(torch.cat((found[0][0], found[1][0])))
            return torch.cat((first, rest))

        return mix

    def _as_bias(self, x: Tensor, layout: PackedLayout, bias: Tensor | None) -> Tensor | None:
        """Return causality, mask and bias as one bias, -inf where nothing is seen; None where all of it is nothing."""
        if layout.mask is not None:
            shut = x.new_zeros(layout.n_rows, 1, *layout.mask.shape[2:])  # (B, 1, T, T); unmixed rows stay 0
            shut[layout.n_unmixed :].masked_fill_(~layout.mask, -math.inf)
        elif self.causal:
            shut = x.new_zeros(x.shape[1], x.shape[1])
        else:
            return bias
        if self.causal:
            # triu(1): keys after the query.
            shut.masked_fill_(torch.ones(shut.shape[-2:], dtype=torch.bool, device=x.device).triu(1), -math.inf)
        return shut if bias is None else shut + bias

    def rotation(self, start: int, stop: int, x: Tensor, places: Tensor | None = None) -> Rotation:
        """Return the rotation of positions start..stop, or of places (B, T), for heads of x (..., D)."""
        return Rotation(start, stop, x[..., : self.d_head], places)
