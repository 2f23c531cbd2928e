"""Kernel regression as attention: a curve at x is the mean of known values, weighted by how near they lie to x.

Nadaraya 1964 and Watson 1964, f(x) = Σᵢ K(x - xᵢ) yᵢ / Σⱼ K(x - xⱼ): x is the query, the xᵢ are keys, the yᵢ values.
With a Gaussian kernel K the weights are a softmax, so that it is one pair of attention.attend's like any other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnkit.models.attention.attend import attend
from attnkit.models.attention.distribution import softmax


class Gaussian(nn.Module):
    """The exponent of the Gaussian kernel, -((q - k) w)² / 2; in several dimensions the squares are summed.

    Without parameters w is 1. Learned, w is one number: the larger, the narrower the kernel (its width is 1 / w).
    """

    w: Tensor

    def __init__(self, learned: bool = False) -> None:
        super().__init__()
        if learned:
            self.w = nn.Parameter(torch.ones(()))
        else:
            self.register_buffer("w", torch.ones(()))

    def prepare(self, keys: Tensor) -> Tensor:
        """Return the keys as they are."""
        return keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (..., T, S); builds (..., T, S, d), so d is best small."""
        apart = (query.unsqueeze(-2) - prepared.unsqueeze(-3)) * self.w  # (..., T, S, d)
        return apart.square().sum(-1) / -2

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (..., T, S)."""
        return self.score(query, self.prepare(keys))


def pool(at: Tensor, x: Tensor, y: Tensor, kernel: Gaussian, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the curve (T,) through points (x, y), (S,) each, at the places ``at`` (T,), and its weights (T, S).

    The mask (T, S) is True where a point may be used.
    """
    mask = None if mask is None else mask[None, None]
    query, keys, values = (numbers[None, None, :, None] for numbers in (at, x, y))  # (1, 1, T or S, 1)
    context, weights = attend(query, keys, values, kernel, softmax, mask)
    return context[0, 0, :, 0], weights[0, 0]


def leave_one_out(x: Tensor, y: Tensor, kernel: Gaussian) -> Tensor:
    """Return the curve (S,) at each point from all the others: what a learned width must be judged by.

    A point that may use itself is fitted best by the narrowest kernel, which has learned nothing.
    """
    return pool(x, x, y, kernel, ~torch.eye(len(x), dtype=torch.bool, device=x.device))[0]
