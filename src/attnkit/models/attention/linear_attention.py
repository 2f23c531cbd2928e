"""Kernel attention in linear time: φ(q)·Σ φ(k) v over φ(q)·Σ φ(k), and its feature maps φ.

A feature map takes vectors (..., d) to positive features (..., m). ``scaled`` returns φ(x) · e^(-c), of moderate size,
and c (..., 1), which gradients do not pass: φ(x) itself may underflow to zeros for long vectors.

Letters: B batch, H heads, T queries, S keys, d width of queries and keys, m features, d_v width of values.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from attnkit.models.linear import HALF


class FavorFeatures(nn.Module):
    """Positive random features of the softmax kernel, FAVOR+ (Choromanski 2021, lemma 1 and section 2.4).

    φ(x) = exp(ω x̂ - |x̂|² / 2) / √m for m directions ω, with x̂ = x / d^(1/4): the mean of φ(q)·φ(k) over the draws of
    ω is exp(q·k / √d), so that kernel x normalize approximates scaled dot x softmax. The directions are blocks of d
    orthogonal vectors with Gaussian lengths. They are a buffer, saved with the model.
    """

    directions: Tensor

    def __init__(self, width: int, n_features: int, seed: int = 0) -> None:
        super().__init__()
        # d^(1/4) on both sides is √d in the product.
        self.scale = width**-0.25
        self.register_buffer("directions", torch.empty(n_features, width))
        if not self.directions.is_meta:
            # They follow from the seed alone; no other random numbers are touched.
            self.directions.copy_(orthogonal_directions(n_features, width, seed))

    def scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the features over their largest, and the logarithm of the largest; half precision becomes float32."""
        x = (x.float() if x.dtype in HALF else x) * self.scale
        inner = x @ self.directions.to(x.dtype).t()  # (..., m)
        largest = inner.detach().amax(-1, keepdim=True)
        half_square = x.square().sum(-1, keepdim=True) / 2
        unscaled = half_square.detach()  # its value occurs in the scale, its gradient in the features
        # A floor far below rounding: the features of two long vectors may share no direction, and a sum of their
        # products that underflows to zero could not be divided by.
        features = (inner - (largest + half_square - unscaled)).exp() + torch.finfo(x.dtype).tiny ** 0.45
        return features, largest - unscaled - math.log(len(self.directions)) / 2


class EluFeatures(nn.Module):
    """φ(x) = elu(x) + 1, number by number (Katharopoulos 2020, eq. 7): m = d. n_features and seed are not used."""

    def __init__(self, width: int, n_features: int = 0, seed: int = 0) -> None:
        super().__init__()

    def scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return φ(x) and zeros: these features need no scale."""
        x = x.float() if x.dtype in HALF else x
        # For x << 0 elu(x) + 1 would round e^x away.
        return torch.where(x > 0, x + 1, x.clamp(max=0).exp()), x.new_zeros((*x.shape[:-1], 1))


def orthogonal_directions(n: int, width: int, seed: int) -> Tensor:
    """Return n directions (n, width) in float64, every ``width`` of them orthogonal, their lengths those of Gaussians.

    Each alone is distributed as a standard normal vector (Choromanski 2021, section 2.4).
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    shape = (2, -(-n // width), width, width)
    drawn, others = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
    basis, triangle = torch.linalg.qr(drawn)
    # Householder's signs are not random: undone, the basis is uniform over all rotations and reflections.
    basis = basis * triangle.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)
    lengths = others.norm(dim=-1, keepdim=True)  # (blocks, width, 1): those of Gaussian vectors
    rows: Tensor = (basis.transpose(-1, -2) * lengths).reshape(-1, width)
    return rows[:n]


FeatureMap = FavorFeatures | EluFeatures
FEATURE_MAPS: dict[str, Callable[[int, int, int], FeatureMap]] = {"favor": FavorFeatures, "elu": EluFeatures}
"""Name -> feature map, made from the width of queries and keys, the number of random features, and a seed."""

Sums = tuple[Tensor, Tensor]
"""Σ φ(k) v and Σ φ(k) over past keys, (B, H, m, d_v + 1), from which the causal form computes chunk by chunk.

They are kept over e^top, the scale (B, H, 1, 1) of the largest key so far: what a key adds never depends on later keys,
on batch mates or on masked keys.
"""
CHUNK = 128  #: positions whose scores the causal form builds at once; it takes T / CHUNK steps


def linear_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    feature_map: FeatureMap,
    mask: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Return the context (B, H, T, d_v) of weights φ(q)·φ(k) / Σ φ(q)·φ(k) in time and memory O(T + S).

    The mask is bool, True = may attend, broadcastable to (B, H, 1, S): one for all queries. ``causal`` lets query i see
    keys 0..i, of which there must be as many as queries. A row with nothing to attend to gives zeros.

    Raises:
        ValueError: The mask differs between queries, or there are not as many keys as queries though causal.
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
    # Split, not sliced: the gradient of each slice would be as long as the whole.
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
            # Earlier chunks come in through their sums alone, brought to the new scale.
            totals = totals + features @ past[0] * (past[1] - finite).exp()
        past = _add(past, key_features, scale, ones)
        contexts.append(_divide(totals).to(query.dtype))
    return torch.cat(contexts, dim=-2)


def _key_features(feature_map: FeatureMap, keys: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the features (B, H, S, m) and scales (B, H, S, 1) of keys, -inf where the mask hides a key."""
    features, scale = feature_map.scaled(keys)
    if mask is not None:
        scale = scale.masked_fill(~mask.transpose(-1, -2) if mask.dim() > 1 else ~mask[:, None], -math.inf)
    return features, scale


def _add(past: Sums | None, features: Tensor, scale: Tensor, ones: Tensor) -> Sums:
    """Return the sums with further keys, of these features and scales, and values (B, H, S, d_v + 1)."""
    top = scale.amax(-2, keepdim=True) if scale.shape[-2] else scale.new_full((1, 1), -math.inf)
    if past is not None:
        top = torch.maximum(top, past[1])
    finite = _finite(top)
    sums = (features * (scale - finite).exp()).transpose(-1, -2) @ ones.to(features.dtype)  # (B, H, m, d_v + 1)
    return (sums if past is None else sums + past[0] * (past[1] - finite).exp()), top  # brought to the new scale


def _with_ones(values: Tensor) -> Tensor:
    """Return the values and a column of ones, whose sum is what the others are divided by."""
    return torch.cat((values, values.new_ones((*values.shape[:-1], 1))), dim=-1)


def _divide(totals: Tensor) -> Tensor:
    # The last column is the sum of weights; a row that sees nothing has 0 there and stays 0.
    above, below = totals[..., :-1], totals[..., -1:]
    return above / below.masked_fill(below == 0, 1.0)


def _finite(top: Tensor) -> Tensor:
    """Return the scale of sums, 0 before the first key: -inf less -inf would not be a number."""
    return top.masked_fill(top == -math.inf, 0.0)
