"""Transformer layers; masking and caching come in as functions.

Letters: B batch, T positions, D model width. So one layer serves the training pass and stepwise decoding alike.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.config import Alignments, AttentionOptions, Distributions
from attnkit.models.attention.multihead import Mix, MultiHeadAttention, take
from attnkit.models.linear import Dropout, Linear


def relu(x: Tensor) -> Tensor:
    """Return max(x, 0), overwriting x: the product before it is read by nobody else, not even for gradients."""
    return F.relu_(x)


# GELU's tanh approximation is GPT-2's; weights of either fit only their own.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class LayerConfig(Protocol):
    """Settings of a layer, common to all models."""

    @property
    def d_model(self) -> int: ...
    @property
    def n_heads(self) -> int: ...
    @property
    def d_ff(self) -> int: ...
    @property
    def norm(self) -> str: ...
    @property
    def norm_eps(self) -> float: ...
    @property
    def alignment(self) -> Alignments: ...
    @property
    def distribution(self) -> Distributions: ...
    @property
    def attention_options(self) -> AttentionOptions: ...
    @property
    def activation(self) -> str: ...
    @property
    def glu(self) -> bool: ...
    @property
    def dropout(self) -> float: ...
    @property
    def activation_dropout(self) -> float: ...


class Residual(nn.Module):
    """Residual connection and norm around a sublayer f, with dropout on f(x).

    Post-norm: LayerNorm(x + f(x)); pre-norm: x + f(LayerNorm(x)).
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        # Post: Vaswani et al. 2017; pre: Xiong et al. 2020, stable without warmup.
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def pre_norm(self, x: Tensor) -> Tensor:
        """Return what the sublayer reads."""
        if not self.pre:
            return x
        normed: Tensor = self.norm(x)
        return normed

    def add_and_norm(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the layer's new x from the old and the sublayer's output y."""
        # (B, T, D)
        x = x + self.dropout(y)
        if self.pre:
            return x
        normed: Tensor = self.norm(x)
        return normed


class FeedForward(nn.Module):
    """Two linear maps with an activation between, at each position alone.

    A gated one multiplies the activation by a second map of the input: down(act(up(x)) * gate(x)) (Shazeer 2020).
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        # D to d_ff, and back.
        self.up = Linear(config.d_model, config.d_ff)
        self.gate = Linear(config.d_model, config.d_ff) if config.glu else None
        self.down = Linear(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)
        for linear in (self.up, self.gate, self.down):
            if linear is not None:
                nn.init.xavier_uniform_(linear.weight)
                nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T, D)."""
        inner = self.activation(self.up(x))  # (B, T, d_ff)
        if self.gate is not None:
            inner = inner * self.gate(x)
        y: Tensor = self.down(self.dropout(inner))  # (B, T, D)
        return y


def build_attention(config: LayerConfig, n_parts: int = 3) -> MultiHeadAttention:
    """Return the attention of one sublayer."""
    # n_parts: 3 for self-attention, 1 for attention to a memory.
    functions = config.alignment, config.distribution, config.attention_options
    return MultiHeadAttention(config.d_model, config.n_heads, n_parts, *functions)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.attention = build_attention(config)
        self.feed_forward = FeedForward(config)
        self.around_attention = Residual(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, own: Mix, places: Tensor | None = None) -> Tensor:
        """Return (B, T, D); own(heads, query, keys, values) mixes the sentence's positions.

        With places (N,) of the flattened rows, only these are computed: (N, D).
        """
        # (B, T, D), or (N, D) with places.
        mixed = self.attention(self.around_attention.pre_norm(x), own, places)
        x = self.around_attention.add_and_norm(x if places is None else take(x, places), mixed)
        return self.around_feed_forward.add_and_norm(x, self.feed_forward(self.around_feed_forward.pre_norm(x)))


class DecoderLayer(nn.Module):
    """Self-attention, attention to the encoder's memory, then feed-forward."""

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.attention = build_attention(config)
        # One part, the query: the memory's keys and values are projected for all layers at once.
        self.cross = build_attention(config, n_parts=1)
        self.feed_forward = FeedForward(config)
        self.around_attention = Residual(config)
        self.around_cross = Residual(config)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, own: Mix, cross: Mix) -> Tensor:
        """Return (B, T, D); own(heads, query, keys, values) mixes target positions, cross(heads, query) a memory's."""
        x = self.around_attention.add_and_norm(x, self.attention(self.around_attention.pre_norm(x), own))
        # Keys and values of the memory do not change with the target: `cross` holds them ready.
        x = self.around_cross.add_and_norm(x, self.cross(self.around_cross.pre_norm(x), cross))
        return self.around_feed_forward.add_and_norm(x, self.feed_forward(self.around_feed_forward.pre_norm(x)))


def transformer_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a model, each of which computes by itself; none for models without such layers."""
    # For compilation and FSDP, which work layer by layer.
    return [part for part in model.modules() if isinstance(part, (EncoderLayer, DecoderLayer))]
