"""Multi-head attention: project to heads, mix, project back (Vaswani 2017, 3.2.2).

Heads may have different alignment and distribution functions. What they may look at is the caller's to say.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attnkit.models.attention.config import AlignmentName, AttentionOptions, DistributionName
from attnkit.models.attention.heads import HeadGroups, Mix, attend_within
from attnkit.models.attention.scaled_dot_product import AttentionScope
from attnkit.models.linear import Linear

FULL_ATTENTION = attend_within(AttentionScope())
"""Every query sees every key."""


class MultiHeadAttention(nn.Module):
    """One product for all projected parts and one back.

    Self-attention projects three parts (query, keys, values); attention to a memory one (the query), since keys and
    values of the memory are computed once for all layers, elsewhere.

    >>> attention = MultiHeadAttention(32, 4, alignment=["scaled_dot", "scaled_dot", "additive", "general"])
    >>> attention(torch.randn(2, 7, 32), attend_within(AttentionScope(causal=True))).shape
    torch.Size([2, 7, 32])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        n_parts: int = 3,
        alignment: AlignmentName | Sequence[AlignmentName] = "scaled_dot",
        distribution: DistributionName | Sequence[DistributionName] = "softmax",
        options: AttentionOptions | None = None,
    ) -> None:
        super().__init__()
        if d_model % n_heads:
            raise ValueError(f"d_model ({d_model}) must be a multiple of n_heads ({n_heads})")
        self.n_heads, self.n_parts = n_heads, n_parts
        self.projection = Linear(d_model, n_parts * d_model)
        self.output = Linear(d_model, d_model)
        self.heads = HeadGroups(n_heads, d_model // n_heads, alignment, distribution, options)
        initialise_parts(self.projection)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor, mix: Mix = FULL_ATTENTION, places: Tensor | None = None) -> Tensor:
        """Return (B, T, D) from x (B, T, D); mix is called with the heads and the n_parts projected parts of x.

        With places (N,) of the flattened rows, only what stands there is projected back: (N, D).
        """
        batch, length, width = x.shape
        # Query, keys and values in one product: a wide matrix keeps the cores busy.
        parts = split_heads(self.projection(x), self.n_parts, self.n_heads)  # (n_parts, B, H, T, d)
        context = mix(self.heads, *parts.unbind(0))  # (B, H, T, d)
        # One copy mends order and precision.
        merged = context.transpose(1, 2).to(x.dtype, memory_format=torch.contiguous_format)
        merged = merged.reshape(batch, length, width)  # (B, T, D)
        y: Tensor = self.output(merged if places is None else take(merged, places))
        return y


def take(x: Tensor, places: Tensor) -> Tensor:
    """Return what stands at places (N,) of the flattened rows of x (B, T, D): (N, D)."""
    return x.flatten(0, 1).index_select(0, places)


def split_heads(projected: Tensor, n_parts: int, n_heads: int) -> Tensor:
    """Return a view (n_parts, B, H, T, d) of projected (B, T, n_parts · H · d)."""
    batch, length, _ = projected.shape
    return projected.view(batch, length, n_parts, n_heads, -1).permute(2, 0, 3, 1, 4)  # (n_parts, B, H, T, d)


def initialise_parts(projection: nn.Linear) -> None:
    """Initialise a fused projection as its square blocks would be, Xavier with gain 1/√2, however many there are.

    For three parts that equals Xavier on the fused matrix, as nn.MultiheadAttention does it.
    """
    width = projection.in_features
    for first in range(0, projection.out_features, width):
        block = projection.weight.data[first : first + width]  # (D, D)
        nn.init.xavier_uniform_(block, gain=2**-0.5)
    nn.init.zeros_(projection.bias)
