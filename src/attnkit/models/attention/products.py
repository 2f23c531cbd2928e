"""Alignment functions that compare by a product or a distance. Formulas: Table 2 of the lecture notes on attention.

Letters: B batch, H heads, T queries, S keys.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.config import AttentionOptions
from attnkit.models.attention.face import AlignmentModule
from attnkit.models.attention.features import FEATURE_MAPS
from attnkit.models.attention.maps import ACTIVATIONS, head_linear


class Similarity(AlignmentModule):
    """sim(k, q), a measure without weights, times the strength (Graves et al. 2014, eq. 5 and 6)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.kind, self.strength = options.similarity, options.strength
        self.root = math.sqrt(d_key)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the keys at length 1, for cosine and pearson; otherwise as they are."""
        return self._turned(keys)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return the similarities, times the strength."""
        if self.kind in ("euclidean", "gaussian"):
            scores = self._by_distance(query, prepared)
        else:
            scores = self._turned(query) @ prepared.transpose(-1, -2)
        return scores if self.strength == 1.0 else scores * self.strength

    def _by_distance(self, query: Tensor, keys: Tensor) -> Tensor:
        # In float32 at least: a small distance is what is left of large squares.
        q, k = (x.float() if x.dtype in (torch.bfloat16, torch.float16) else x for x in (query, keys))
        lengths = q.square().sum(-1, keepdim=True) + k.square().sum(-1).unsqueeze(-2)
        squares = (lengths - 2 * (q @ k.transpose(-1, -2))).clamp(min=0.0)
        if self.kind == "gaussian":
            return torch.exp(squares / (-2 * self.root)).to(query.dtype)
        # The root's slope at 0 is infinite: a key that equals the query gets no gradient.
        return -squares.clamp(min=torch.finfo(squares.dtype).eps).sqrt().to(query.dtype)

    def _turned(self, x: Tensor) -> Tensor:
        if self.kind == "pearson":
            x = x - x.mean(-1, keepdim=True)
        return F.normalize(x, dim=-1) if self.kind in ("cosine", "pearson") else x


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
        self.keys = head_linear(n_heads, d_key, d_query, bias=False)

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
        self.query = head_linear(n_heads, d_query, d_key)

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
        self.keys = head_linear(n_heads, d_key, d_query, bias=False)
        self.bias = nn.Parameter(torch.zeros(n_heads))
        self.activation = ACTIVATIONS[options.activation]

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return Wk, (B, H, S, d_query)."""
        prepared: Tensor = self.keys(keys)
        return prepared

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return act(q·Wk + b)."""
        return self.activation(query @ prepared.transpose(-1, -2) + self.bias.view(-1, 1, 1))


class Kernel(AlignmentModule):
    """φ(q)ᵀφ(k), never negative; the heads share the random directions of φ (Choromanski et al. 2021)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.feature_map = FEATURE_MAPS[options.feature_map](d_key, options.n_features, 0)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return φ(k), (B, H, S, m)."""
        return torch.as_tensor(self.feature_map(keys))

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return φ(q)·φ(k)."""
        return torch.as_tensor(self.feature_map(query)) @ prepared.transpose(-1, -2)
