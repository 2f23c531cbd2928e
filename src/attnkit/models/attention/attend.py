"""Attention as one operator: A(q, K, V) = Σᵢ p(a(kᵢ, q)) vᵢ; kernel regression as its simplest case.

Letters: B batch, H heads, T queries, S keys, d width of queries and keys, d_v width of values.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.alignment import AlignmentModule, Kernel, ScaledDot
from attnkit.models.attention.distribution import Distribution, normalize, softmax
from attnkit.models.attention.linear_attention import linear_attention
from attnkit.models.attention.scaled_dot_product import AttentionScope, scaled_dot


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    align: AlignmentModule,
    distribute: Distribution,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the context (B, H, T, d_v) and the weights (B, H, T, S), computed as they are written."""
    weights = AttentionFunction(align, distribute).weights(query, align.prepare(keys), AttentionScope(mask))
    return weights @ values, weights  # (B, H, T, S) @ (B, H, S, d_v)


class AttentionFunction(NamedTuple):
    """An alignment with a distribution function."""

    align: AlignmentModule
    distribute: Distribution

    def weights(self, query: Tensor, prepared: Tensor, scope: AttentionScope) -> Tensor:
        """Return the weights (B, H, T, S) of prepared keys within a scope, the scores having been shifted by its bias.

        A decoder prepares its keys once per sentence.
        """
        allowed = scope.allowed(query.shape[-2], prepared.shape[-2], query.device)
        if self.distribute is normalize and scope.bias is None:
            # Sums of tiny scores underflow: numerators relative to the largest give the same weights.
            return normalize(self.align.relative(query, prepared, allowed), query, allowed).to(query.dtype)
        scores = self.align.score(query, prepared)  # (B, H, T, S)
        if scope.bias is not None:
            scores = scores + scope.bias  # positions: ALiBi or relative biases
        return self.distribute(scores, query, allowed).to(query.dtype)  # a float32 bias has widened the scores

    def context(
        self, query: Tensor, keys: Tensor, values: Tensor, scope: AttentionScope, dropout: float = 0.0
    ) -> Tensor:
        """Return the context (B, H, T, d_v) by the fastest equal form.

        Scaled dot x softmax takes the fused kernel; kernel x normalize takes linear time where the mask is the same
        for all queries; every other pair is computed as it is written.
        """
        if self.distribute is softmax and isinstance(self.align, ScaledDot):
            return scaled_dot(query, keys, values, scope, dropout)  # no weights in memory
        one_mask = scope.mask is None or scope.mask.dim() < 2 or scope.mask.shape[-2] == 1
        plain = one_mask and scope.bias is None and not dropout
        # Associativity: φ(q)ᵀ(Σ φ(k) vᵀ) needs no T × S weights (Katharopoulos et al. 2020, eq. 5).
        if self.distribute is normalize and isinstance(self.align, Kernel) and plain:
            return linear_attention(query, keys, values, self.align.feature_map, scope.mask, scope.causal)
        weights = self.weights(query, self.align.prepare(keys), scope)
        # Dropout acts on weights, as in Vaswani et al. 2017 and its successors.
        return F.dropout(weights, dropout) @ values if dropout else weights @ values


class Gaussian(AlignmentModule):
    """The exponent of the Gaussian kernel, -((q - k) w)² / 2; in several dimensions the squares are summed.

    Without parameters w is 1. Learned, w is one number: the larger, the narrower the kernel (its width is 1 / w).
    """

    w: Tensor

    def __init__(self, learned: bool = False) -> None:
        super().__init__()
        if learned:
            self.w = nn.Parameter(torch.ones(()))
        else:
            # A buffer: saved with the model, never trained.
            self.register_buffer("w", torch.ones(()))

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (..., T, S); builds (..., T, S, d), so d is best small."""
        apart = (query.unsqueeze(-2) - prepared.unsqueeze(-3)) * self.w  # (..., T, S, d)
        return apart.square().sum(-1) / -2  # (..., T, S)


def pool(at: Tensor, x: Tensor, y: Tensor, kernel: Gaussian, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the curve (T,) at numbers ``at`` (T,) through points (x, y), (S,) each, and its weights (T, S).

    The mask (T, S) is True where a point may be used.
    """
    mask = None if mask is None else mask[None, None]  # (1, 1, T, S)
    query, keys, values = (numbers[None, None, :, None] for numbers in (at, x, y))  # (1, 1, T or S, 1)
    context, weights = attend(query, keys, values, kernel, softmax, mask)
    # Without the batch, head and width dimensions of 1.
    return context[0, 0, :, 0], weights[0, 0]


def leave_one_out(x: Tensor, y: Tensor, kernel: Gaussian) -> Tensor:
    """Return the curve (S,) at each point from all the others: what a learned width must be judged by.

    A point that may use itself is fitted best by the narrowest kernel, which has learned nothing.
    """
    # The diagonal is masked: no point sees itself.
    return pool(x, x, y, kernel, ~torch.eye(len(x), dtype=torch.bool, device=x.device))[0]
