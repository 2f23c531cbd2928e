"""Distribution functions, which map attention scores (B, H, T, S) to weights.

Masks are bool, True = may attend, broadcastable to the scores. Masked keys and fully masked rows get exactly 0. Rows
of softmax, normalize, hard, sparsemax and entmax15 sum to one, those of sigmoid and local do not; S may be 0. All
functions except local are plain functions of (scores, query, mask).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnkit.models.attention.config import AttentionOptions, DistributionName
from attnkit.models.linear import HALF, build_head_vector, build_per_head_linear, weighted_sum

Distribution = Callable[[Tensor, Tensor, "Tensor | None"], Tensor]


def softmax(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return exp(s) / Σ exp(s) over the unmasked keys; the query is not used.

    Fully masked rows give zeros and zero gradients.
    """
    if mask is None:
        return scores.softmax(-1)
    # Filled twice: first with the lowest number (-inf would give NaN rows), then with exact zeros.
    blocked = ~mask
    weights = scores.masked_fill(blocked, torch.finfo(scores.dtype).min).softmax(-1)
    return weights.masked_fill(blocked, 0.0)


def normalize(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return s / Σ s of non-negative scores; a row of zeros gives zeros.

    The gradient of a row is proportional to 1 / Σ s; rows in which it would overflow pass no gradient.
    """
    scores = _zero_masked(scores, mask)
    if scores.requires_grad:
        faint = scores.detach().sum(-1, keepdim=True).abs() < 1024 * torch.finfo(scores.dtype).tiny
        scores = torch.where(faint, scores.detach(), scores)
    total = scores.sum(-1, keepdim=True)
    # A row of zeros stays a row of zeros.
    return scores / total.masked_fill(total == 0, 1.0)


def hard(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return one-hot weights of each row's largest score, the first one in a tie.

    The gradient is that of softmax (the straight-through estimator of Bengio et al. 2013).
    """
    if not scores.shape[-1]:
        return scores
    # Masked keys lose every comparison.
    visible = scores if mask is None else scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    chosen = torch.zeros_like(scores).scatter_(-1, visible.detach().argmax(-1, keepdim=True), 1.0)
    chosen = _zero_masked(chosen, mask)
    if not scores.requires_grad:
        return chosen
    # The forward pass makes the hard choice, the backward pass uses the gradient of softmax.
    soft = softmax(scores, query, mask)
    return chosen + (soft - soft.detach())  # the added term is exactly 0


def sigmoid(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return 1 / (1 + exp(-s)) of each key independently; rows need not sum to 1."""
    return _zero_masked(scores.sigmoid(), mask)


def sparsemax(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Project onto the simplex, max(s - τ, 0) (Martins and Astudillo 2016, alg. 1)."""
    if not scores.shape[-1]:
        return scores
    z = _shifted(scores, mask)
    ordered = z.detach().sort(-1, descending=True).values
    counts = torch.arange(1, z.shape[-1] + 1, device=z.device)
    # k(z) of the algorithm: the size of the support.
    size = (1 + counts * ordered > ordered.cumsum(-1)).sum(-1, keepdim=True)
    inside = z >= ordered.gather(-1, size - 1)
    # τ = (Σ of the support - 1) / k, computed from z and not from the detached copy, for the gradient.
    threshold = (z.masked_fill(~inside, 0.0).sum(-1, keepdim=True) - 1) / inside.sum(-1, keepdim=True)
    return _zero_masked((z - threshold).clamp(min=0.0).to(scores.dtype), mask)


def entmax15(scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
    """Return 1.5-entmax, max(s / 2 - τ, 0)², by sorting (Peters et al. 2019, alg. 2)."""
    if not scores.shape[-1]:
        return scores
    z = _shifted(scores / 2, mask)
    ordered = z.detach().sort(-1, descending=True).values
    counts = torch.arange(1, z.shape[-1] + 1, device=z.device)
    # Mean and sum of squared deviations of the k largest scores, for every k at once.
    means = ordered.cumsum(-1) / counts
    spread = ordered.square().cumsum(-1) - counts * means.square()
    thresholds = means - ((1 - spread) / counts).clamp(min=0.0).sqrt()
    size = (thresholds <= ordered).sum(-1, keepdim=True)
    inside = z >= ordered.gather(-1, size - 1)
    # The same quantities for the chosen support, this time with gradients.
    count = inside.sum(-1, keepdim=True)
    mean = z.masked_fill(~inside, 0.0).sum(-1, keepdim=True) / count
    spread = (z - mean).masked_fill(~inside, 0.0).square().sum(-1, keepdim=True)
    # (1 - spread) / count is (mean - τ)², which is positive since the largest weight is.
    threshold = mean - ((1 - spread) / count).clamp(min=torch.finfo(z.dtype).tiny).sqrt()
    return _zero_masked((z - threshold).clamp(min=0.0).square().to(scores.dtype), mask)


def _shifted(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Subtract each row's maximum and clamp at -2, below all thresholds in [-1, 0).

    Half precision becomes float32 for the sums over sorted rows.
    """
    z = scores.float() if scores.dtype in HALF else scores
    if mask is not None:
        z = z.masked_fill(~mask, torch.finfo(z.dtype).min)
    return (z - z.detach().amax(-1, keepdim=True)).clamp(min=-2.0)


def _zero_masked(weights: Tensor, mask: Tensor | None) -> Tensor:
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


class Local(nn.Module):
    """Local-p attention: a window around a predicted centre (Luong et al. 2015, 3.2).

    The centre is p = S · sigmoid(v·tanh(W q)) for S keys at positions 0..S - 1 (eq. 9). The weights are the softmax
    over the keys within D of p, times exp(-(s - p)² / 2σ²) with σ = D / 2 (eq. 10), so rows sum to less than one. S and
    the positions count visible keys only: padding, and in a decoder future tokens, have no effect.
    """

    def __init__(self, d_query: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.n_heads, self.window, d_hidden = n_heads, options.window, options.d_hidden or d_query
        self.query = build_per_head_linear(n_heads, d_query, d_hidden, bias=False)
        self.weight = build_head_vector(n_heads, d_hidden)

    def forward(self, scores: Tensor, query: Tensor, mask: Tensor | None) -> Tensor:
        """Return weights (B, H, T, S) for scores and their queries (B, H, T, d)."""
        # (B, H, T) in (0, 1), equation 9 without the factor S.
        share = weighted_sum(torch.tanh_(self.query(query)), self.weight, self.n_heads).sigmoid()
        if share.dtype in HALF:
            share = share.float()  # half precision cannot distinguish positions beyond 256
        if mask is None:
            distance = torch.arange(scores.shape[-1], device=scores.device) - scores.shape[-1] * share.unsqueeze(-1)
        else:
            mask = mask.expand(*mask.shape[:-1], scores.shape[-1])  # a broadcast mask must count once per key
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
"""Name -> function, or a class with parameters, called with d_query, the options and the number of heads."""


def make_distribution(
    name: DistributionName, d_query: int, options: AttentionOptions | None = None, n_heads: int = 1
) -> Distribution:
    """Build a distribution function, called as distribute(scores, query, mask)."""
    function = DISTRIBUTIONS[name]
    return function(d_query, options or AttentionOptions(), n_heads) if isinstance(function, type) else function
