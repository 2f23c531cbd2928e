"""Alignment functions that compare by a small network, or look at one side alone.

Formulas: Table 2 of the lecture notes on attention. Letters: B batch, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnkit.models.attention.base import (
    ACTIVATIONS,
    AlignmentModule,
    build_per_head_linear,
    head_vector,
    map_heads,
    per_head,
    weighted_sum,
)
from attnkit.models.attention.config import AttentionOptions, KeyFeatureName
from attnkit.models.positions import sinusoids


class Additive(AlignmentModule):
    """A small network w·act(W₁q + W₂k + b) (Bahdanau et al. 2015, appendix A.1.2)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.n_heads, d_hidden = n_heads, options.d_hidden or d_query
        self.activation = ACTIVATIONS[options.activation]
        self.query = build_per_head_linear(n_heads, d_query, d_hidden, bias=False)
        self.keys = build_per_head_linear(n_heads, d_key, d_hidden)
        self.weight = head_vector(n_heads, d_hidden)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return W₂k + b, (B, H, S, d_hidden)."""
        prepared: Tensor = self.keys(keys)
        return prepared

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return w·act(W₁q + W₂k + b); builds (B, H, T, S, d_hidden), so T is best small."""
        inner = self.query(query).unsqueeze(-2) + prepared.unsqueeze(-3)  # (B, H, T, S, d_hidden)
        return weighted_sum(self.activation(inner), self.weight, self.n_heads)


class Concat(AlignmentModule):
    """w·act(W[q; k] + b) (Luong et al. 2015, eq. 8): additive, with one matrix for both."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.n_heads, self.d_query, d_hidden = n_heads, d_query, options.d_hidden or d_query
        self.activation = ACTIVATIONS[options.activation]
        # One matrix, as in the paper; its column blocks are applied apart.
        self.both = build_per_head_linear(n_heads, d_query + d_key, d_hidden)
        self.weight = head_vector(n_heads, d_hidden)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return W's part for k, and b, (B, H, S, d_hidden): W[q; k] is the sum of two products."""
        return map_heads(keys, self.both.weight[..., self.d_query :], self.both.bias)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return w·act(W[q; k] + b); builds (B, H, T, S, d_hidden)."""
        asked = map_heads(query, self.both.weight[..., : self.d_query])  # (B, H, T, d_hidden)
        inner = asked.unsqueeze(-2) + prepared.unsqueeze(-3)  # (B, H, T, 1, d') + (B, H, 1, S, d')
        return weighted_sum(self.activation(inner), self.weight, self.n_heads)


class Deep(AlignmentModule):
    """w·E⁽ᴸ⁻¹⁾ + bᴸ, where E¹ = act(W₁k + W₀q) + b¹ and Eˡ = act(WˡEˡ⁻¹ + bˡ) (Pavlopoulos et al. 2017)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.n_heads, d_hidden = n_heads, options.d_hidden or d_query
        self.activation = ACTIVATIONS[options.activation]
        self.query = build_per_head_linear(n_heads, d_query, d_hidden, bias=False)
        self.keys = build_per_head_linear(n_heads, d_key, d_hidden, bias=False)
        # The first layer is split like that of additive alignment.
        # b¹ comes after the activation, unlike all later biases, as in the paper's formula.
        self.first_bias = nn.Parameter(torch.zeros(n_heads * d_hidden))
        self.layers = nn.ModuleList(
            build_per_head_linear(n_heads, d_hidden, d_hidden) for _ in range(options.deep_layers - 2)
        )
        self.weight = head_vector(n_heads, d_hidden)
        self.bias = nn.Parameter(torch.zeros(n_heads))

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return W₁k, (B, H, S, d_hidden)."""
        prepared: Tensor = self.keys(keys)
        return prepared

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return w·E⁽ᴸ⁻¹⁾ + bᴸ; builds (B, H, T, S, d_hidden) for every layer."""
        inner = self.query(query).unsqueeze(-2) + prepared.unsqueeze(-3)  # (B, H, T, S, d_hidden)
        inner = self.activation(inner) + per_head(self.first_bias, self.n_heads, 5)
        for layer in self.layers:
            inner = self.activation(layer(inner))
        return weighted_sum(inner, self.weight, self.n_heads) + self.bias.view(-1, 1, 1)


class Location(AlignmentModule):
    """w_i·q: position i is scored from the query alone (Luong et al. 2015, section 3.1), up to max_source positions."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(n_heads, options.max_source, d_query).normal_(std=d_query**-0.5))

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return each key's w_i, (B, H, S, d_query); of the keys only their number matters."""
        n_keys, n_rows = keys.shape[-2], self.table.shape[1]
        last = n_keys if at is None else at + 1
        if last > n_rows:
            raise ValueError(f"location attention knows {n_rows} positions; the sentence needs {last}")
        # While decoding all new keys stand at one position.
        rows = self.table[:, :n_keys] if at is None else self.table[:, at : at + 1]  # (H, S, d_query)
        return rows.expand(*keys.shape[:-1], -1)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return q·w_i."""
        return query @ prepared.transpose(-1, -2)


class Feature(AlignmentModule):
    """w·act(W₁φ₁(K) + W₂φ₂(K) + b): keys are scored by their own features, whatever the query (Li et al. 2019)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__()
        self.n_heads, d_hidden = n_heads, options.d_hidden or d_query
        self.activation = ACTIVATIONS[options.activation]
        self.features = KEY_FEATURES[options.first_feature], KEY_FEATURES[options.second_feature]
        self.first = build_per_head_linear(n_heads, d_key, d_hidden, bias=False)
        self.second = build_per_head_linear(n_heads, d_key, d_hidden)
        self.weight = head_vector(n_heads, d_hidden)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the scores of the keys, (B, H, S, 1)."""
        first, second = (function(keys, at) for function in self.features)
        inner = self.first(first) + self.second(second)  # (B, H, S, d_hidden): no query, so no T
        # (B, H, S, 1)
        return weighted_sum(self.activation(inner), self.weight, self.n_heads).unsqueeze(-1)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return the keys' scores, the same for every query."""
        return prepared.transpose(-1, -2).expand(*query.shape[:-1], -1)  # a view (B, H, T, S)


def _identity(keys: Tensor, at: int | None) -> Tensor:
    return keys


def _position(keys: Tensor, at: int | None) -> Tensor:
    """Return the sinusoids of the keys' positions, as wide as the keys."""
    start, stop = (0, keys.shape[-2]) if at is None else (at, at + 1)
    return sinusoids(start, stop, like=keys)[:, : keys.shape[-1]].expand(keys.shape)


def _square(keys: Tensor, at: int | None) -> Tensor:
    return keys.square()


KEY_FEATURES: dict[KeyFeatureName, Callable[[Tensor, int | None], Tensor]] = {
    "identity": _identity,
    "position": _position,
    "square": _square,
}
"""φ of a feature-based alignment: keys (B, H, S, d) and the position of all of them (None: 0, 1, ...) to features."""
