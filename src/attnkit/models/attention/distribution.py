"""Distribution functions p: scores (B, H, T, S) to weights. Masked keys and rows without keys get exactly 0.

All but local are plain functions of (scores, query, mask); masks are bool, True = may attend, broadcastable to scores.
softmax, normalize, hard, sparsemax and entmax15 give rows that sum to one; sigmoid and local do not. Without any key
(S = 0) rows are empty.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnkit.models.attention.config import AttentionOptions, DistributionName
from attnkit.models.linear import HALF, build_head_vector, build_per_head_linear, weighted_sum

Distribution = Callable[[Tensor, Tensor, "Tensor | None"], Tensor]


def softmax(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return exp(s) / Σ exp(s) over the keys that the mask allows (True = may attend); the query is not used.

    A row with nothing to attend to gives zeros, and zero gradients.
    """
    if mask is None:
        return scores.softmax(-1)
    # Twice filled: first with the lowest number (-inf would give NaN rows), then with exact zeros.
    blocked = ~mask
    weights = scores.masked_fill(blocked, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(blocked, 0.0)


def normalize(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return s / Σ s of scores that are not negative; a row whose scores are all zero gives zeros.

    The slope of a row is 1 / Σ s. Where that is about to exceed all numbers, the row passes no gradient.
    """
    scores = _zero_masked(scores, mask)
    if scores.requires_grad:
        faint = scores.detach().sum(-1, keepdim=True).abs() < 1024 * torch.finfo(scores.dtype).tiny
        scores = torch.where(faint, scores.detach(), scores)
    total = scores.sum(-1, keepdim=True)
    # A row of zeros stays a row of zeros.
    return scores / total.masked_fill(total == 0, 1.0)


def hard(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return 1 for a row's largest score, the first of equal ones, and 0 elsewhere.

    That has no useful gradient: scores get the one that softmax would have given them (the straight-through estimator
    of Bengio et al. 2013).
    """
    if not scores.shape[-1]:
        return scores
    # masked keys lose every comparison
    visible = scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    chosen = torch.zeros_like(scores).scatter_(-1, visible.detach().argmax(-1, keepdim=True), 1.0)
    chosen = _zero_masked(chosen, mask)
    if not scores.requires_grad:
        return chosen
    # Forward the hard choice, backward the gradient of softmax.
    soft = softmax(scores, query, mask)
    return chosen + (soft - soft.detach())  # what is added is exactly 0


def sigmoid(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return 1 / (1 + exp(-s)): each key is weighed by itself, and rows sum to anything."""
    return _zero_masked(scores.sigmoid(), mask)


def sparsemax(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return the nearest point of the simplex, max(s - τ, 0) (Martins and Astudillo 2016, algorithm 1)."""
    if not scores.shape[-1]:
        return scores
    z = _shifted(scores, mask)
    ordered = z.detach().sort(-1, descending=True).values
    counts = torch.arange(1, z.shape[-1] + 1, device=z.device)
    # k(z) of the algorithm: how many of the sorted scores are in the support.
    size = (1 + counts * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True)
    inside = z >= ordered.gather(-1, size - 1)
    # τ = (Σ of the support - 1) / k; from z, not from the sorted copy, so that gradients pass.
    threshold = (z.masked_fill(~inside, 0.0).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True)
    return _zero_masked((z - threshold).clamp(min=0.0).to(scores.dtype), mask)


def entmax15(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return max(s / 2 - τ, 0)², α-entmax with α = 1.5, exactly by sorting (Peters et al. 2019, algorithm 2)."""
    if not scores.shape[-1]:
        return scores
    z = _shifted(scores / 2, mask)
    ordered = z.detach().sort(-1, descending=True).values
    counts = torch.arange(1, z.shape[-1] + 1, device=z.device)
    # Mean and spread of the k largest scores, for every k at once.
    means = ordered.cumsum(-1) / counts
    spread = ordered.square().cumsum(-1) - counts * means.square()
    thresholds = means - ((1 - spread) / counts).clamp(min=0.0).sqrt()
    size = (thresholds <= ordered).sum(-1, keepdim=True)
    inside = z >= ordered.gather(-1, size - 1)
    # The same quantities for the chosen support, this time with gradients.
    count = inside.sum(-1, keepdim=True)
    mean = z.masked_fill(~inside, 0.0).sum(-1, keepdim=True) / count
    spread = (z - mean).masked_fill(~inside, 0.0).square().sum(-1, keepdim=True)
    # (1 - spread) / count is (mean - τ)², which is above 0: the largest weight of all is.
    threshold = mean - ((1 - spread) / count).clamp(min=torch.finfo(z.dtype).tiny).sqrt()
    return _zero_masked((z - threshold).clamp(min=0.0).square().to(scores.dtype), mask)


def _shifted(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Return scores less their row's largest, at least -2: the thresholds lie in [-1, 0), so lower ones weigh nothing.

    Half precision becomes float32, for sums over sorted rows.
    """
    z = scores.float() if scores.dtype in HALF else scores
    if mask is not None:
        z = z.masked_fill(~mask, torch.finfo(z.dtype).min)
    return (z - z.detach().amax(-1, keepdim=True)).clamp(min=-2.0)


def _zero_masked(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


class Local(nn.Module):
    """A window around a centre that the query chooses: local-p (Luong et al. 2015, section 3.2, eq. 9 and 10).

    The centre is p = S · sigmoid(v·tanh(W q)), of S keys at positions 0..S - 1. The weights are the softmax over the
    keys within D of it, times exp(-(s - p)² / 2σ²) with σ = D / 2; so rows sum to less than one. S and the positions
    count the keys that a row may see: padding, and in a decoder the future, change nothing.
    """

    def __init__(self, d_query: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.n_heads, self.window, d_hidden = n_heads, options.window, options.d_hidden or d_query
        self.query = build_per_head_linear(n_heads, d_query, d_hidden, bias=False)
        self.weight = build_head_vector(n_heads, d_hidden)

    def forward(self, scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
        """Return weights (B, H, T, S) for the queries (B, H, T, d) that the scores belong to."""
        # (B, H, T) in (0, 1), equation 9 without the factor S.
        share = weighted_sum(torch.tanh_(self.query(query)), self.weight, self.n_heads).sigmoid()
        if share.dtype in HALF:
            share = share.float()  # half precision cannot tell the positions beyond 256 apart
        if mask is None:
            distance = torch.arange(scores.shape[-1], device=scores.device) - scores.shape[-1] * share.unsqueeze(-1)
        else:
            mask = mask.expand(*mask.shape[:-1], scores.shape[-1])  # one True for all keys counts as often as they do
            distance = mask.cumsum(-1) - 1 - mask.sum(-1, keepdim=True) * share.unsqueeze(-1)  # (B, H, T, S)
        near = distance.detach().abs() <= self.window  # the window [p - D, p + D]
        weights = softmax(scores, query, near if mask is None else near & mask)
        # exp(-(s - p)² / 2σ²) with σ = D / 2 is exp(-2 ((s - p) / D)²).
        return weights * torch.exp(-2 * (distance / self.window).square()).to(weights.dtype)


DISTRIBUTIONS: dict[DistributionName, Distribution | type[Local]] = {
    "softmax": softmax,
    "normalize": normalize,
    "hard": hard,
    "sigmoid": sigmoid,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
    "local": Local,
}
"""Name -> function, or the class of one with weights: made from the width of queries, the options and the heads."""


def make_distribution(
    name: DistributionName, d_query: int, options: AttentionOptions | None = None, n_heads: int = 1
) -> Distribution:
    """Return a distribution function, called as distribute(scores, query, mask); local has weights to train."""
    function = DISTRIBUTIONS[name]
    return function(d_query, options or AttentionOptions(), n_heads) if isinstance(function, type) else function
