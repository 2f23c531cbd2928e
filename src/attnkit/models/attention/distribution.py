"""Distribution functions p: scores (B, H, T, S) to weights; masked keys and rows without keys get exactly 0."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Distribution = Callable[[Tensor, Tensor, "Tensor | None"], Tensor]


def softmax(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return exp(s) / Σ exp(s) over the keys that the mask allows (True = may attend); the query is not used.

    A row with nothing to attend to gives zeros, and zero gradients: the mask is filled with the lowest finite number,
    since -inf would make such a row NaN, and then with zeros.
    """
    if mask is None:
        return scores.softmax(-1)
    blocked = ~mask
    weights = scores.masked_fill(blocked, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(blocked, 0.0)


DISTRIBUTIONS: dict[str, Distribution] = {"softmax": softmax}
