"""The base class of alignment functions, and linear maps with weights per head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.config import ActivationName
from attnkit.models.linear import Linear

# In place where autograd allows: the tensors are (B, H, T, S, d), the largest of all.
ACTIVATIONS: dict[ActivationName, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": F.relu_,
    "sigmoid": torch.sigmoid_,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "silu": F.silu,
}
"""Some overwrite what they are given, which must be read by nobody else."""


class PerHeadLinear(nn.Module):
    """A linear map for each head: x (B, H, ..., d_in) to (B, H, ..., d_out)."""

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
    return y if bias is None else y + per_head(bias, len(weight), y.dim())


def per_head(flat: Tensor, n_heads: int, n_dims: int) -> Tensor:
    """Return a vector (H * d,) as (H, 1, ..., d), to be broadcast to a tensor (B, H, ..., d) of n_dims dimensions."""
    return flat.view(n_heads, *[1] * (n_dims - 3), -1)


def build_per_head_linear(
    n_heads: int, d_in: int, d_out: int, bias: bool = True, gain: float = 1.0
) -> Linear | PerHeadLinear:
    """Return an initialised linear map, Xavier-uniform times a gain with a bias of zeros.

    It is the plain one where there is one head.
    """
    linear = Linear(d_in, d_out, bias) if n_heads == 1 else PerHeadLinear(n_heads, d_in, d_out, bias)
    # Head by head: the fan-out of all heads together would make the range too narrow.
    for weight in linear.weight.data.view(n_heads, d_out, d_in):
        nn.init.xavier_uniform_(weight, gain)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear


def bilinear(n_heads: int, d_in: int, d_out: int, bias: bool = True) -> Linear | PerHeadLinear:
    """Return the initialised map W of scores qᵀWk, from keys to queries or back.

    They begin as spread as those of a scaled dot product. Without the root, the softmax of long vectors picks one key
    from the start on, and little gradient comes through it.
    """
    # The gain 1/√d takes the place of the division in scaled dot products.
    return build_per_head_linear(n_heads, d_in, d_out, bias, d_in**-0.5)


def head_vector(n_heads: int, width: int) -> nn.Parameter:
    """Return a vector of width numbers for each head, drawn so that its product with unit numbers has variance 1."""
    return nn.Parameter(torch.empty(n_heads * width).normal_(std=width**-0.5))


def weighted_sum(x: Tensor, vector: Tensor, n_heads: int) -> Tensor:
    """Return w·x (B, H, ...) for x (B, H, ..., width) and the heads' vectors (H * width,)."""
    if n_heads == 1:
        return x @ vector
    # As products of (..., N, width) and (width, 1): einsum would copy x, the largest tensor there is.
    return (x @ vector.view(n_heads, *[1] * (x.dim() - 4), -1, 1)).squeeze(-1)


class Alignment(Protocol):
    """Scores of queries (B, H, T, d_query) against keys (B, H, S, d_key)."""

    def prepare(self, keys: Tensor) -> Tensor:
        """Return what depends on the keys alone, (B, H, S, width), the width being the function's own."""
        ...

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (B, H, T, S) of queries against prepared keys."""
        ...

    def __call__(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S)."""
        ...


class AlignmentModule(nn.Module):
    """An alignment function of the table; satisfies Alignment."""

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return what depends on the keys alone, (B, H, S, width).

        at is the position at which all the keys stand, as in a step of a decoder; None: they stand at 0, 1, 2, ...
        """
        raise NotImplementedError

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (B, H, T, S) of queries against prepared keys."""
        raise NotImplementedError

    def relative(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        """Return the scores times any positive number of each row's own, which weights s / Σ s do not notice.

        Functions whose scores may all vanish beside the smallest number there is choose it by what the mask shows.
        """
        return self.score(query, prepared)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S)."""
        return self.score(query, self.prepare(keys))
