"""Alignment functions a(q, k), which score queries against keys.

``prepare`` computes the part that depends on the keys only, once per sentence; ``score`` computes the rest. Each head
has its own weights. ``ALIGNMENTS`` maps names to classes. Formulas: Table 2 of the lecture notes on attention.

Letters: B batch, H heads, T queries, S keys, d width of queries and keys, d_hidden width of the hidden layer.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.config import SAME_WIDTH, ActivationName, AlignmentName, AttentionOptions, KeyFeatureName
from attnkit.models.attention.linear_attention import FEATURE_MAPS
from attnkit.models.linear import (
    HALF,
    Linear,
    PerHeadLinear,
    build_head_vector,
    build_per_head_linear,
    map_heads,
    spread_heads,
    weighted_sum,
)
from attnkit.models.positions import sinusoids

# In place where autograd allows it: the inputs (B, H, T, S, d_hidden) are the largest tensors.
ACTIVATIONS: dict[ActivationName, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh_,
    "relu": F.relu_,
    "sigmoid": torch.sigmoid_,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "silu": F.silu,
}
"""Some of these overwrite their input, which the caller must not use afterwards."""


class AlignmentModule(nn.Module):
    """Base class of alignment functions; the default score is the dot product."""

    def __init__(
        self, d_query: int = 1, d_key: int = 1, options: AttentionOptions = AttentionOptions(), n_heads: int = 1
    ) -> None:
        super().__init__()
        self.n_heads, self.d_hidden = n_heads, options.d_hidden or d_query
        self.activation = ACTIVATIONS[options.activation]
        # Projection of the keys, in functions that have one.
        self.keys: Linear | PerHeadLinear | None = None

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Precompute the part of the scores that depends on the keys only, (B, H, S, ...).

        ``at`` is the common position of all keys, as in a decoding step; None means positions 0, 1, 2, ...
        """
        return keys if self.keys is None else self.keys(keys)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (B, H, T, S) of queries against prepared keys."""
        return query @ prepared.transpose(-1, -2)

    def relative(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        """Return the scores times a positive factor per row, which cancels in s / Σ s.

        Functions whose scores may underflow choose the factor from the visible keys.
        """
        return self.score(query, prepared)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Score queries (B, H, T, d_query) against keys (B, H, S, d_key): (B, H, T, S)."""
        return self.score(query, self.prepare(keys))


# Functions based on a product or a distance.
class Similarity(AlignmentModule):
    """A parameter-free similarity times a strength (Graves et al. 2014, eq. 5 and 6)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        self.kind, self.strength = options.similarity, options.strength
        # Scales the exponent of the Gaussian, as √d scales a dot product.
        self.root = math.sqrt(d_key)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the keys, normalized to unit length for cosine and pearson."""
        if self.kind == "pearson":
            # Pearson's correlation is the cosine of centred vectors.
            keys = keys - keys.mean(-1, keepdim=True)
        # Unit vectors turn the dot product into the cosine.
        return F.normalize(keys, dim=-1) if self.kind in ("cosine", "pearson") else keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return the similarities (B, H, T, S) times the strength."""
        if self.kind == "euclidean":
            scores = -_distances(query, prepared).to(query.dtype)
        elif self.kind == "gaussian":
            scores = torch.exp(_distances(query, prepared).square() / (-2 * self.root)).to(query.dtype)
        else:
            scores = self.prepare(query) @ prepared.transpose(-1, -2)  # (B, H, T, S)
        return scores if self.strength == 1.0 else scores * self.strength

    def relative(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        """Return gaussian scores relative to the nearest visible key, to avoid underflow."""
        if self.kind != "gaussian" or not prepared.shape[-2]:
            return self.score(query, prepared)
        squares = _distances(query, prepared).square()  # (B, H, T, S)
        # Detached: normalisation cancels the shift and its gradient.
        visible = squares.detach() if mask is None else squares.detach().masked_fill(~mask, math.inf)
        nearest = visible.amin(-1, keepdim=True)
        nearest = nearest.masked_fill(nearest == math.inf, 0.0)
        # A masked key may be nearer; without the clamp its exponential could overflow.
        return torch.exp(((nearest - squares) / (2 * self.root)).clamp(max=0.0))


def _distances(query: Tensor, keys: Tensor) -> Tensor:
    """Return |q - k| (B, H, T, S), in float32 or wider; no gradient where it is 0."""
    q, k = (x.float() if x.dtype in HALF else x for x in (query, keys))
    # Elementwise: |q|² + |k|² - 2 q·k cancels to rounding errors if long vectors are close to each other.
    return torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")


class Dot(AlignmentModule):
    """The dot product q·k (Luong et al. 2015, eq. 8)."""


class ScaledDot(AlignmentModule):
    """The scaled dot product q·k / √d_key (Vaswani et al. 2017, eq. 1)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        # Keeps the variance of scores at 1 for unit-variance queries and keys.
        self.scale = 1.0 / math.sqrt(d_key)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return q·k / √d_key; scaling the query is cheaper than scaling the scores."""
        return (query * self.scale) @ prepared.transpose(-1, -2)


class General(AlignmentModule):
    """The bilinear form qᵀWk (Luong et al. 2015, eq. 8); d_query and d_key may differ."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        # The gain 1/√d replaces the division of scaled dot products: with a larger variance of the scores, the
        # softmax would be saturated from the start and pass little gradient.
        self.keys = build_per_head_linear(n_heads, d_key, d_query, bias=False, gain=d_key**-0.5)  # k to Wk


class BiasedGeneral(AlignmentModule):
    """The biased bilinear form k·(Wq + b) (Sordoni et al. 2016)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        self.query = build_per_head_linear(n_heads, d_query, d_key, gain=d_query**-0.5)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return (Wq + b)·k."""
        return self.query(query) @ prepared.transpose(-1, -2)


class ActivatedGeneral(AlignmentModule):
    """The activated bilinear form act(qᵀWk + b), one b per head (Ma et al. 2017)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        self.keys = build_per_head_linear(n_heads, d_key, d_query, bias=False, gain=d_key**-0.5)
        self.bias = nn.Parameter(torch.zeros(n_heads))

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return act(q·Wk + b)."""
        return self.activation(query @ prepared.transpose(-1, -2) + self.bias.view(-1, 1, 1))  # (B, H, T, S)


class Kernel(AlignmentModule):
    """The kernel φ(q)ᵀφ(k) ≥ 0; heads share the features φ (Choromanski et al. 2021)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        self.feature_map = FEATURE_MAPS[options.feature_map](d_key, options.n_features, 0)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the keys' features and log-scale, (B, H, S, m + 1), in float32 or wider."""
        return torch.cat(self.feature_map.scaled(keys), dim=-1)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return φ(q)·φ(k), which may underflow for long vectors, unlike ``relative``."""
        features, scale = self.feature_map.scaled(query)  # (B, H, T, m), (B, H, T, 1)
        key_features, key_scale = prepared[..., :-1], prepared[..., -1:]  # (B, H, S, m), (B, H, S, 1)
        scores = (features @ key_features.transpose(-1, -2)) * (scale + key_scale.transpose(-1, -2)).exp()
        return scores.to(query.dtype)

    def relative(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        """Return φ(q)·φ(k) over the scale of q and the largest scale of visible keys.

        After normalization these are the weights of ``linear_attention``, so that training and decoding agree.
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


# Functions with a hidden layer.
class Additive(AlignmentModule):
    """Additive attention w·act(W₁q + W₂k + b) (Bahdanau et al. 2015, A.1.2)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        self.query = build_per_head_linear(n_heads, d_query, self.d_hidden, bias=False)  # W₁
        self.keys = build_per_head_linear(n_heads, d_key, self.d_hidden)  # W₂ and b
        self.weight = build_head_vector(n_heads, self.d_hidden)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return w·act(W₁q + W₂k + b); allocates (B, H, T, S, d_hidden)."""
        inner = _sum_of_pairs(self.query(query), prepared)
        return weighted_sum(self.activation(inner), self.weight, self.n_heads)


def _sum_of_pairs(query: Tensor, prepared: Tensor) -> Tensor:
    return query.unsqueeze(-2) + prepared.unsqueeze(-3)  # (B, H, T, 1, d_hidden) + (B, H, 1, S, d_hidden)


class Concat(AlignmentModule):
    """Concat attention w·act(W[q; k] + b) (Luong et al. 2015, eq. 8)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        self.d_query = d_query
        # One matrix, as in the paper; its column blocks are applied separately: W[q; k] is a sum of two products.
        self.both = build_per_head_linear(n_heads, d_query + d_key, self.d_hidden)
        self.weight = build_head_vector(n_heads, self.d_hidden)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the key part of W[q; k] + b, (B, H, S, d_hidden)."""
        return map_heads(keys, self.both.weight[..., self.d_query :], self.both.bias)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return w·act(W[q; k] + b); allocates (B, H, T, S, d_hidden)."""
        inner = _sum_of_pairs(map_heads(query, self.both.weight[..., : self.d_query]), prepared)
        return weighted_sum(self.activation(inner), self.weight, self.n_heads)


class Deep(AlignmentModule):
    """Deep attention w·E⁽ᴸ⁻¹⁾ + bᴸ with L - 1 hidden layers (Pavlopoulos et al. 2017)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        d_hidden = self.d_hidden
        # E¹ = act(W₁k + W₀q) + b¹ is split as in additive alignment; Eˡ = act(WˡEˡ⁻¹ + bˡ).
        self.query = build_per_head_linear(n_heads, d_query, d_hidden, bias=False)
        self.keys = build_per_head_linear(n_heads, d_key, d_hidden, bias=False)
        # b¹ is added after the activation, unlike all later biases, as in the paper.
        self.first_bias = nn.Parameter(torch.zeros(n_heads * d_hidden))
        n_inner = options.deep_layers - 2
        self.layers = nn.ModuleList(build_per_head_linear(n_heads, d_hidden, d_hidden) for _ in range(n_inner))
        self.weight = build_head_vector(n_heads, d_hidden)
        self.bias = nn.Parameter(torch.zeros(n_heads))

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return w·E⁽ᴸ⁻¹⁾ + bᴸ; each layer allocates (B, H, T, S, d_hidden)."""
        inner = self.activation(_sum_of_pairs(self.query(query), prepared))
        inner = inner + spread_heads(self.first_bias, self.n_heads, 5)
        for layer in self.layers:
            inner = self.activation(layer(inner))
        return weighted_sum(inner, self.weight, self.n_heads) + self.bias.view(-1, 1, 1)


# Functions of the query only or of the keys only.
class Location(AlignmentModule):
    """Location attention w_i·q from the query only (Luong et al. 2015, section 3.1)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        self.table = nn.Parameter(torch.empty(n_heads, options.max_source, d_query).normal_(std=d_query**-0.5))

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return w_i of each position, (B, H, S, d_query); ValueError beyond max_source."""
        # In a decoding step, all new keys have the same position.
        start, stop = (0, keys.shape[-2]) if at is None else (at, at + 1)
        if stop > self.table.shape[1]:
            raise ValueError(f"source length {stop} exceeds the {self.table.shape[1]} positions of location attention")
        return self.table[:, start:stop].expand(*keys.shape[:-1], -1)  # (H, S or 1, d_query) to (B, H, S, d_query)


class Feature(AlignmentModule):
    """w·act(W₁φ₁(K) + W₂φ₂(K) + b), which ignores the query (Li et al. 2019)."""

    def __init__(self, d_query: int, d_key: int, options: AttentionOptions, n_heads: int) -> None:
        super().__init__(d_query, d_key, options, n_heads)
        self.features = options.first_feature, options.second_feature
        self.first = build_per_head_linear(n_heads, d_key, self.d_hidden, bias=False)
        self.second = build_per_head_linear(n_heads, d_key, self.d_hidden)
        self.weight = build_head_vector(n_heads, self.d_hidden)

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return the scores of the keys, (B, H, S, 1)."""
        first, second = (_key_features(name, keys, at) for name in self.features)
        inner = self.first(first) + self.second(second)  # (B, H, S, d_hidden): no query, so no T
        return weighted_sum(self.activation(inner), self.weight, self.n_heads).unsqueeze(-1)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return the key scores (B, H, T, S), the same for every query."""
        return prepared.transpose(-1, -2).expand(*query.shape[:-1], -1)  # a view (B, H, T, S)


def _key_features(name: KeyFeatureName, keys: Tensor, at: int | None) -> Tensor:
    """Return φ of keys (B, H, S, d) at positions 0, 1, ..., or all at position ``at``."""
    if name == "identity":
        return keys
    if name == "square":
        return keys.square()
    start, stop = (0, keys.shape[-2]) if at is None else (at, at + 1)
    return sinusoids(start, stop, like=keys)[:, : keys.shape[-1]].expand(keys.shape)


# Registry of the names used in configurations.
ALIGNMENTS: dict[AlignmentName, Callable[[int, int, AttentionOptions, int], AlignmentModule]] = {
    "similarity": Similarity,
    "dot": Dot,
    "scaled_dot": ScaledDot,
    "general": General,
    "biased_general": BiasedGeneral,
    "activated_general": ActivatedGeneral,
    "kernel": Kernel,
    "concat": Concat,
    "additive": Additive,
    "deep": Deep,
    "location": Location,
    "feature": Feature,
}
"""Name -> class, called with d_query, d_key, the options and the number of heads."""


def make_alignment(
    name: AlignmentName, d_query: int, d_key: int, options: AttentionOptions | None = None, n_heads: int = 1
) -> AlignmentModule:
    """Build the alignment; ValueError if it needs equal widths and they differ."""
    # These compare queries and keys elementwise; all others project at least one side.
    if name in SAME_WIDTH and d_query != d_key:
        raise ValueError(f"{name} needs queries and keys of equal width, not {d_query} and {d_key}")
    return ALIGNMENTS[name](d_query, d_key, options or AttentionOptions(), n_heads)
