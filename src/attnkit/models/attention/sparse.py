"""Scaled dot x softmax over a sparse pattern, without a full T x S matrix.

Tiles of a row are accumulated under a running maximum, and the backward pass recomputes the weights (FlashAttention:
Dao 2022, algorithms 1 and 4), so memory is linear in T + S. Letters: B batch, H heads, T queries, S keys, d width.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attnkit.models.attention.patterns import Pattern, Tile
from attnkit.models.linear import HALF

Bias = Callable[[Tensor], Tensor]
"""Maps distances j - i (rows, columns) to a bias that is added to the scores, (H, rows, columns)."""


def sparse_attention(
    query: Tensor, keys: Tensor, values: Tensor, pattern: Pattern, mask: Tensor | None = None, bias: Bias | None = None
) -> Tensor:
    """Return the context (B, H, T, d_v) of scaled dot x softmax over a sparse pattern.

    Scores are q·k / √d + bias. The mask is bool, True = may attend, broadcastable to (B, H, 1, S): one for all queries.
    A bias that is a module is trained too. Fully masked rows give zeros.

    Raises:
        ValueError: The mask differs between queries; use the pattern for that.
    """
    if mask is not None and mask.dim() > 1 and mask.shape[-2] != 1:
        raise ValueError("sparse attention needs one mask for all queries; only the pattern may vary by query")
    mask = None if mask is None else mask.expand(*mask.shape[:-1], keys.shape[-2])
    tables = [table for table in bias.parameters() if table.requires_grad] if isinstance(bias, nn.Module) else []
    plan = _Plan(pattern, mask, bias, query.shape[-1] ** -0.5)
    dtype = query.dtype
    if dtype in HALF:
        # In half precision, running sums over tiles would lose their low bits.
        query, keys, values = query.float(), keys.float(), values.float()
    return _Sparse.apply(plan, query, keys, values, *tables).to(dtype)  # type: ignore[no-any-return,no-untyped-call]


@dataclass(frozen=True)
class _Plan:
    """Inputs of the tile-wise computation of scores."""

    pattern: Pattern
    mask: Tensor | None
    bias: Bias | None
    scale: float

    def scores(self, tile: Tile, query: Tensor, keys: Tensor) -> Tensor:
        """Return the scores (B, H, rows, columns) of a tile, -inf at masked pairs."""
        rows, columns = _slice(tile.queries), _slice(tile.keys)
        scores = (query[..., rows, :] * self.scale) @ keys[..., columns, :].transpose(-1, -2)
        if self.bias is not None or tile.sees is not None:
            i, j = _positions(tile, query.device)
            if self.bias is not None:
                scores += self.bias(j - i).to(scores.dtype)
            if tile.sees is not None:
                scores.masked_fill_(~tile.sees(i, j), -math.inf)
        if self.mask is not None:
            scores.masked_fill_(~self.mask[..., columns], -math.inf)
        return scores


class _Sparse(torch.autograd.Function):
    """Attention over tiles, with gradients computed over the same tiles."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, query: Tensor, keys: Tensor, values: Tensor, *tables: Tensor) -> Tensor:
        # Per row: weighted sum of values, sum of weights, and the largest score so far.
        context = query.new_zeros((*query.shape[:-1], values.shape[-1]))
        sums = query.new_zeros((*query.shape[:-1], 1))
        tops = torch.full_like(sums, -math.inf)
        for tile in plan.pattern.tiles(query.shape[-2], keys.shape[-2]):
            rows = _slice(tile.queries)
            scores = plan.scores(tile, query, keys)
            top = torch.maximum(tops[..., rows, :], scores.amax(-1, keepdim=True))
            finite = top.masked_fill(top == -math.inf, 0.0)  # -inf - -inf would be NaN
            weights = scores.sub_(finite).exp_()
            shrunk = (tops[..., rows, :] - finite).exp_()  # rescales earlier sums to the new maximum
            sums[..., rows, :] = sums[..., rows, :] * shrunk + weights.sum(-1, keepdim=True)
            context[..., rows, :] = context[..., rows, :] * shrunk + weights @ values[..., _slice(tile.keys), :]
            tops[..., rows, :] = top
        unseen = sums == 0
        context /= sums.masked_fill(unseen, 1.0)
        tops = (tops + sums.log()).masked_fill_(unseen, math.inf)  # log Σ e^score; e^(score - inf) is 0
        ctx.save_for_backward(query, keys, values, context, tops, *tables)
        ctx.plan = plan
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, keys, values, context, tops, *tables = ctx.saved_tensors
        plan: _Plan = ctx.plan
        # Accumulators, since several tiles share rows and columns.
        to_query, to_keys, to_values = (torch.zeros_like(part) for part in (query, keys, values))
        to_tables = [torch.zeros_like(table) for table in tables]
        # The gradient of softmax is w (g - Σ w g), and Σ w g is gradient · context (Dao 2022, algorithm 4).
        shared = (gradient * context).sum(-1, keepdim=True)
        for tile in plan.pattern.tiles(query.shape[-2], keys.shape[-2]):
            rows, columns = _slice(tile.queries), _slice(tile.keys)
            weights = plan.scores(tile, query, keys).sub_(tops[..., rows, :]).exp_()  # recomputed, not stored
            from_context = gradient[..., rows, :]
            to_values[..., columns, :] += weights.transpose(-1, -2) @ from_context
            to_scores = from_context @ values[..., columns, :].transpose(-1, -2)  # (B, H, rows, columns)
            to_scores = to_scores.sub_(shared[..., rows, :]).mul_(weights)
            if plan.bias is not None and tables:
                i, j = _positions(tile, gradient.device)
                with torch.enable_grad():
                    bias = plan.bias(j - i)
                summed = to_scores.sum_to_size(to_scores.shape[-3:]).to(bias.dtype)  # over the batch
                parts = torch.autograd.grad(bias, tables, summed.expand_as(bias))
                for total, part in zip(to_tables, parts, strict=True):
                    total += part
            # The scale was applied to the query before the product.
            to_scores *= plan.scale
            to_query[..., rows, :] += to_scores @ keys[..., columns, :]
            to_keys[..., columns, :] += to_scores.transpose(-1, -2) @ query[..., rows, :]
        return None, to_query, to_keys, to_values, *to_tables


def _positions(tile: Tile, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the positions of a tile's queries (rows, 1) and keys (1, columns)."""
    i, j = (torch.arange(part.start, part.stop, part.step, device=device) for part in (tile.queries, tile.keys))
    return i[:, None], j[None, :]


def _slice(part: range) -> slice:
    return slice(part.start, part.stop, part.step)
