"""Alignment functions that compare by a product or a distance. Formulas: Table 2 of the lecture notes on attention.

Letters: B batch, H heads, T queries, S keys.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.base import ACTIVATIONS, AlignmentModule, bilinear
from attnkit.models.attention.config import AttentionOptions
from attnkit.models.attention.linear_attention import FEATURE_MAPS, HALF


class Similarity(AlignmentModule):
    """sim(k, q), a measure without weights, times the strength (Graves et al. 2014, eq. 5 and 6)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.kind, self.strength = options.similarity, options.strength
        # Scales the exponent of the Gaussian, as √d scales a dot product.
        self.root = math.sqrt(d_key)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the keys at length 1, for cosine and pearson; otherwise as they are."""
        return self._turned(keys)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return the similarities, times the strength."""
        if self.kind in ("euclidean", "gaussian"):
            scores = self._by_distance(query, prepared)
        else:
            scores = self._turned(query) @ prepared.transpose(-1, -2)  # (B, H, T, S)
        return scores if self.strength == 1.0 else scores * self.strength

    def relative(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        """Return the gaussian over that of the nearest key in sight, so that keys far away are not all 0."""
        if self.kind != "gaussian" or not prepared.shape[-2]:
            return self.score(query, prepared)
        squares = _distances(query, prepared).square()  # (B, H, T, S)
        seen = squares.detach() if mask is None else squares.detach().masked_fill(~mask, math.inf)
        # Detached: normalisation cancels the shift, and its gradient with it.
        nearest = seen.amin(-1, keepdim=True)
        nearest = nearest.masked_fill(nearest == math.inf, 0.0)
        # A hidden key may be nearer, and its exponential infinite.
        return torch.exp(((nearest - squares) / (2 * self.root)).clamp(max=0.0))

    def _by_distance(self, query: Tensor, keys: Tensor) -> Tensor:
        distances = _distances(query, keys)
        if self.kind == "gaussian":
            return torch.exp(distances.square() / (-2 * self.root)).to(query.dtype)
        return -distances.to(query.dtype)

    def _turned(self, x: Tensor) -> Tensor:
        if self.kind == "pearson":
            # Pearson's correlation is the cosine of centred vectors.
            x = x - x.mean(-1, keepdim=True)
        # Unit vectors turn the dot product into the cosine.
        return F.normalize(x, dim=-1) if self.kind in ("cosine", "pearson") else x


def _distances(query: Tensor, keys: Tensor) -> Tensor:
    """Return |q - k| (B, H, T, S), in float32 at least; a key that equals its query gets no gradient.

    Number by number: of |q|² + |k|² - 2 q·k rounding leaves nothing where vectors are long and their distance is small.
    """
    q, k = (x.float() if x.dtype in HALF else x for x in (query, keys))
    return torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")


class Dot(AlignmentModule):
    """The dot product q·k (Luong et al. 2015, eq. 8)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the keys as they are."""
        return keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return q·k."""
        return query @ prepared.transpose(-1, -2)


class ScaledDot(AlignmentModule):
    """The scaled dot product q·k / √d_key (Vaswani et al. 2017, eq. 1)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        # Keeps the variance of scores at 1 for unit-variance queries and keys.
        self.scale = 1.0 / math.sqrt(d_key)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the keys as they are: the scale goes to the query, which is smaller."""
        return keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return q·k / √d_key."""
        return (query * self.scale) @ prepared.transpose(-1, -2)


class General(AlignmentModule):
    """The bilinear form qᵀWk (Luong et al. 2015, eq. 8); widths may differ."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.keys = bilinear(n_heads, d_key, d_query, bias=False)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return Wk, (B, H, S, d_query)."""
        prepared: Tensor = self.keys(keys)
        return prepared

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return q·Wk."""
        return query @ prepared.transpose(-1, -2)


class BiasedGeneral(AlignmentModule):
    """k·(Wq + b) (Sordoni et al. 2016)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.query = bilinear(n_heads, d_query, d_key)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the keys as they are: the weights are the query's."""
        return keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return (Wq + b)·k."""
        scores: Tensor = self.query(query) @ prepared.transpose(-1, -2)
        return scores


class ActivatedGeneral(AlignmentModule):
    """act(qᵀWk + b) with one number b a head (Ma et al. 2017)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.keys = bilinear(n_heads, d_key, d_query, bias=False)
        self.bias = nn.Parameter(torch.zeros(n_heads))
        self.activation = ACTIVATIONS[options.activation]

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return Wk, (B, H, S, d_query)."""
        prepared: Tensor = self.keys(keys)
        return prepared

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return act(q·Wk + b)."""
        # (B, H, T, S); the bias of a head is one number.
        return self.activation(query @ prepared.transpose(-1, -2) + self.bias.view(-1, 1, 1))


class Kernel(AlignmentModule):
    """φ(q)ᵀφ(k), never negative; the heads share the random directions of φ (Choromanski et al. 2021)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.feature_map = FEATURE_MAPS[options.feature_map](d_key, options.n_features, 0)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return φ(k) as features and the logarithm of their scale, (B, H, S, m + 1), in float32 at least."""
        return torch.cat(self.feature_map.scaled(keys), dim=-1)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return φ(q)·φ(k); it may underflow to zeros for long vectors, where ``relative`` does not."""
        features, scale = self.feature_map.scaled(query)  # (B, H, T, m), (B, H, T, 1)
        # (B, H, S, m), (B, H, S, 1)
        key_features, key_scale = prepared[..., :-1], prepared[..., -1:]
        scores = (features @ key_features.transpose(-1, -2)) * (scale + key_scale.transpose(-1, -2)).exp()
        return scores.to(query.dtype)

    def relative(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        """Return φ(q)·φ(k) over the scale of q and over the largest scale of the keys in sight.

        Weights are then those of attention.linear, which training has where a decoder's steps build scores.
        """
        if not prepared.shape[-2]:
            return self.score(query, prepared)
        features, _ = self.feature_map.scaled(query)
        key_features, scale = prepared[..., :-1], prepared[..., -1:].transpose(-1, -2)
        if mask is not None:
            scale = scale.masked_fill(~mask, -math.inf)
        top = scale.amax(-1, keepdim=True)  # (B, H, T or 1, 1)
        # -inf - -inf would be NaN where every key is masked.
        finite = top.masked_fill(top == -math.inf, 0.0)
        return (features @ key_features.transpose(-1, -2)) * (scale - finite).exp()
