"""Linear-time kernel attention φ(q)·Σ φ(k) v / φ(q)·Σ φ(k), and feature maps φ.

A feature map turns vectors (..., d) into positive features (..., m). Since φ(x) may underflow for long vectors,
``scaled`` returns φ(x) · e^(-c) and the log-scale c (..., 1), which carries no gradient.

Letters: B batch, H heads, T queries, S keys, d width of queries and keys, m features, d_v width of values.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from attnkit.models.linear import HALF


class FavorFeatures(nn.Module):
    """FAVOR+, positive random features of softmax (Choromanski 2021, lemma 1 and 2.4).

    φ(x) = exp(ω x̂ - |x̂|² / 2) / √m for m directions ω, with x̂ = x / d^(1/4). The expectation of φ(q)·φ(k) over ω is
    exp(q·k / √d), so kernel x normalize approximates scaled dot x softmax. The directions are blocks of d orthogonal
    vectors with Gaussian lengths, in a buffer that is saved with the model.

    The approximation holds for short vectors only: the variance grows with e^|q̂ + k̂|² (lemma 2). With d = 64 and 128
    features, the relative error of the context is 0.07 for norms of 2 and 0.5 for 4; averaging all values has 0.06 and
    0.23. With norms of 8, those of unit normals, it is 2.3, three times that of averaging.

    With ``mirrored``, half of the directions are the negatives of the others: the hyperbolic features of lemma 1. For
    short vectors the deviations of ω and -ω cancel (norms of 2: 0.03 instead of 0.07), for long ones they do not.
    """

    directions: Tensor

    def __init__(self, width: int, n_features: int, seed: int = 0, mirrored: bool = False) -> None:
        super().__init__()
        # d^(1/4) in both factors is √d in the product.
        self.scale = width**-0.25
        self.register_buffer("directions", torch.empty(n_features, width))
        if not self.directions.is_meta:
            # Drawn from the seed alone, without changing torch's random state.
            n_drawn = -(-n_features // 2) if mirrored else n_features
            drawn = orthogonal_directions(n_drawn, width, seed)
            self.directions.copy_(torch.cat((drawn, -drawn))[:n_features])

    def scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features over their maximum, and its logarithm, in float32 or wider."""
        x = (x.float() if x.dtype in HALF else x) * self.scale
        inner = x @ self.directions.to(x.dtype).t()  # (..., m)
        largest = inner.detach().amax(-1, keepdim=True)
        half_square = x.square().sum(-1, keepdim=True) / 2
        unscaled = half_square.detach()  # its value is in the scale, its gradient in the features
        # A floor far below rounding error: features of two long vectors may not overlap, and the sum of their
        # products, a denominator, must not underflow to zero.
        features = (inner - (largest + half_square - unscaled)).exp() + torch.finfo(x.dtype).tiny ** 0.45
        return features, largest - unscaled - math.log(len(self.directions)) / 2


class EluFeatures(nn.Module):
    """Elementwise features φ(x) = elu(x) + 1, so m = d (Katharopoulos 2020, eq. 7)."""

    def __init__(self, width: int, n_features: int = 0, seed: int = 0) -> None:  # the signature of FavorFeatures
        super().__init__()

    def scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(x) and log-scales of zero."""
        x = x.float() if x.dtype in HALF else x
        # For x << 0, elu(x) + 1 would lose e^x to rounding.
        return torch.where(x > 0, x + 1, x.clamp(max=0).exp()), x.new_zeros((*x.shape[:-1], 1))


def orthogonal_directions(n: int, width: int, seed: int) -> Tensor:
    """Draw directions (n, width) in float64, orthogonal in blocks of ``width``.

    Each follows the standard normal distribution (Choromanski 2021, section 2.4).
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    shape = (2, -(-n // width), width, width)
    drawn, others = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    basis, triangle = torch.linalg.qr(drawn)
    # Householder signs are not random; undoing them makes the basis uniform over rotations and reflections.
    basis = basis * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    lengths = others.norm(dim=-1, keepdim=True)  # (blocks, width, 1): lengths of Gaussian vectors
    rows: Tensor = (basis.transpose(-1, -2) * lengths).reshape(-1, width)
    return rows[:n]


FeatureMap = FavorFeatures | EluFeatures
FEATURE_MAPS: dict[str, Callable[[int, int, int], FeatureMap]] = {
    "favor": FavorFeatures,
    "favor_hyperbolic": partial(FavorFeatures, mirrored=True),
    "elu": EluFeatures,
}
"""Name -> feature map, called with the width of queries and keys, the number of features and a seed."""

Sums = tuple[Tensor, Tensor]
"""Running sums Σ φ(k) v and Σ φ(k), (B, H, m, d_v + 1), and their log-scale (B, H, 1, 1), for the causal form.

The sums are divided by e^top, the scale of the largest key so far. The contribution of a key never depends on later
keys, on masked keys or on other rows of the batch.
"""
CHUNK = 128  #: positions per chunk of the causal form, which takes T / CHUNK steps


def linear_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    feature_map: FeatureMap,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Return the context (B, H, T, d_v) of kernel attention in linear time and memory.

    Weights are φ(q)·φ(k) / Σ φ(q)·φ(k). The mask is bool, True = may attend, broadcastable to (B, H, 1, S): one for all
    queries. With ``causal``, query i attends to keys 0..i, and T must equal S. Fully masked rows give zeros.

    Raises:
        ValueError: The mask differs between queries, or ``causal`` is set and T and S differ.
    """
    n_queries, n_keys = query.shape[-2], keys.shape[-2]
    if mask is not None and mask.dim() > 1 and mask.shape[-2] != 1:
        raise ValueError("linear attention needs one mask for all queries: it never computes scores")
    if causal and n_queries != n_keys:
        raise ValueError(f"causal linear attention needs as many keys as queries, not {n_keys} and {n_queries}")
    if not causal:
        sums, _ = _add(None, *_key_features(feature_map, keys, mask), _with_ones(values))
        features, _ = feature_map.scaled(query)  # (B, H, T, m); a query's scale cancels
        return _divide(features @ sums).to(query.dtype)
    # torch.split instead of slices, because the gradient of each slice would be as long as the whole tensor.
    queries, keyed, valued = (torch.split(tensor, CHUNK, dim=-2) for tensor in (query, keys, values))
    masks: Sequence[Tensor | None] = [None] * len(queries)
    if mask is not None:
        masks = torch.split(mask.expand(*mask.shape[:-1], n_keys), CHUNK, dim=-1)
    past: Sums | None = None
    contexts = []
    for q, k, v, allowed in zip(queries, keyed, valued, masks, strict=True):
        features, _ = feature_map.scaled(q)  # (B, H, T, m)
        key_features, scale = _key_features(feature_map, k, allowed)
        ones = _with_ones(v).to(features.dtype)
        tops = scale.cummax(-2).values  # (B, H, T, 1), -inf where all keys so far are masked
        if past is not None:
            tops = torch.maximum(tops, past[1])
        finite = _finite(tops)
        future = torch.ones(scale.shape[-2], scale.shape[-2], dtype=torch.bool, device=scale.device).triu(1)
        shrunk = (scale.transpose(-1, -2) - finite).masked_fill_(future, -math.inf).exp_()  # (B, H, T, T)
        totals = (features @ key_features.transpose(-1, -2) * shrunk) @ ones  # (B, H, T, d_v + 1)
        if past is not None:
            # Earlier chunks contribute only through their sums, rescaled to the new maximum.
            totals = totals + features @ past[0] * (past[1] - finite).exp()
        past = _add(past, key_features, scale, ones)
        contexts.append(_divide(totals).to(query.dtype))
    return torch.cat(contexts, dim=-2)


def _key_features(feature_map: FeatureMap, keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return key features (B, H, S, m) and log-scales (B, H, S, 1), -inf if masked."""
    features, scale = feature_map.scaled(keys)
    if mask is not None:
        scale = scale.masked_fill(~mask.transpose(-1, -2) if mask.dim() > 1 else ~mask[:, None], -math.inf)
    return features, scale


def _add(past: Sums | None, features: Tensor, scale: Tensor, ones: Tensor) -> Sums:
    """Add keys and their values (B, H, S, d_v + 1) to the running sums."""
    top = scale.amax(-2, keepdim=True) if scale.shape[-2] else scale.new_full((1, 1), -math.inf)
    if past is not None:
        top = torch.maximum(top, past[1])
    finite = _finite(top)
    sums = (features * (scale - finite).exp()).transpose(-1, -2) @ ones.to(features.dtype)  # (B, H, m, d_v + 1)
    return (sums if past is None else sums + past[0] * (past[1] - finite).exp()), top  # rescaled


def _with_ones(values: Tensor) -> Tensor:
    """Append a column of ones to the values; its weighted sum is the denominator."""
    return torch.cat((values, values.new_ones((*values.shape[:-1], 1))), dim=-1)


def _divide(totals: Tensor) -> Tensor:
    # The last column is the sum of weights: 0 for fully masked rows, which stay 0.
    above, below = totals[..., :-1], totals[..., -1:]
    return above / below.masked_fill(below == 0, 1.0)


def _finite(top: Tensor) -> Tensor:
    """Replace a log-scale of -inf (no key yet) by 0, since -inf - -inf is NaN."""
    return top.masked_fill(top == -math.inf, 0.0)
