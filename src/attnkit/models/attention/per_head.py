"""Linear maps and vectors with weights per head.

Letters: B batch, H heads, T queries, S keys, d width of a vector.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.linear import Linear


class PerHeadLinear(nn.Module):
    """A linear map for each head: x (B, H, ..., d_in) to (B, H, ..., d_out)."""

    __call__: Callable[..., Tensor]

    def __init__(self, n_heads: int, d_in: int, d_out: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_heads, d_out, d_in))
        # Of one dimension, as biases are: weight decay leaves those alone.
        self.bias = nn.Parameter(torch.empty(n_heads * d_out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, H, ..., d_out)."""
        return map_heads(x, self.weight, self.bias)


def map_heads(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Map x (B, H, ..., d_in) by weight (d_out, d_in), or by each head's of (H, d_out, d_in), and add a bias."""
    if weight.dim() == 2:
        return F.linear(x, weight, bias)
    y = torch.einsum("bh...i,hoi->bh...o", x, weight)  # (B, H, ..., d_out)
    return y if bias is None else y + spread_heads(bias, len(weight), y.dim())


def spread_heads(flat: Tensor, n_heads: int, n_dims: int) -> Tensor:
    """Return a vector (H * d,) as (H, 1, ..., d), to be broadcast to a tensor (B, H, ..., d) of n_dims dimensions."""
    return flat.view(n_heads, *[1] * (n_dims - 3), -1)


def build_per_head_linear(
    n_heads: int, d_in: int, d_out: int, bias: bool = True, gain: float = 1.0
) -> Linear | PerHeadLinear:
    """Return an initialised linear map, the plain one for one head: Xavier-uniform times a gain, zero bias."""
    linear = Linear(d_in, d_out, bias) if n_heads == 1 else PerHeadLinear(n_heads, d_in, d_out, bias)
    # Head by head: the fan-out of all heads together would make the range too narrow.
    for weight in linear.weight.data.view(n_heads, d_out, d_in):
        nn.init.xavier_uniform_(weight, gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def build_head_vector(n_heads: int, width: int) -> nn.Parameter:
    """Return a vector of width numbers for each head, drawn so that its product with unit numbers has variance 1."""
    return nn.Parameter(torch.empty(n_heads * width).normal_(std=width**-0.5))


def weighted_sum(x: Tensor, vector: Tensor, n_heads: int) -> Tensor:
    """Return w·x (B, H, ...) for x (B, H, ..., width) and the heads' vectors (H * width,)."""
    if n_heads == 1:
        return x @ vector
    # As products of (..., N, width) and (width, 1): einsum would copy x, the largest tensor there is.
    return (x @ vector.view(n_heads, *[1] * (x.dim() - 4), -1, 1)).squeeze(-1)
