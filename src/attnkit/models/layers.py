"""Transformer layers. Masking and caching come in as functions: one layer serves training and stepwise decoding.

Letters: B batch, T positions, N chosen positions of the flattened rows, D model width, d_ff inner width.
"""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.multihead import Mix, MultiHeadAttention, take
from attnkit.models.config import LayerConfig
from attnkit.models.linear import Dropout, Linear, init_xavier

# GELU's tanh approximation is GPT-2's; weights of either fit only their own.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu_,  # overwrites the product before it, which nobody else reads, not even gradients
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class Residual(nn.Module):
    """Residual connection and norm around a sublayer f, with dropout on f(x).

    Post-norm: LayerNorm(x + f(x)) (Vaswani et al. 2017); pre-norm: x + f(LayerNorm(x)), which is stable without warmup
    (Xiong et al. 2020).
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)
        self.dropout = Dropout(config.dropout)

    def add(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], positions: Tensor | None = None) -> Tensor:
        """Return the layer's new x (B, T, D), or (N, D) where the sublayer gives only positions (N,)."""
        y = sublayer(self.norm(x) if self.pre else x)
        x = x if positions is None else take(x, positions)
        x = x + self.dropout(y)
        return x if self.pre else self.norm(x)


def top_norm(config: LayerConfig) -> nn.Module:
    """Return the norm at the top of a stack: pre-norm leaves x unnormed, post-norm layers end with their own."""
    return nn.LayerNorm(config.d_model, eps=config.norm_eps) if config.norm == "pre" else nn.Identity()


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
        init_xavier(self.up, self.gate, self.down)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T, D)."""
        inner = self.activation(self.up(x))  # (B, T, d_ff)
        if self.gate is not None:
            inner = inner * self.gate(x)
        return self.down(self.dropout(inner))  # (B, T, D)


def build_attention(config: LayerConfig, n_parts: int = 3) -> MultiHeadAttention:
    """Return the attention of one sublayer; n_parts is 3 for self-attention, 1 for attention to a memory."""
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

    def forward(self, x: Tensor, own: Mix, positions: Tensor | None = None) -> Tensor:
        """Return (B, T, D); ``own`` computes self-attention from (heads, query, keys, values).

        With positions (N,) of the flattened rows, only these are computed: (N, D).
        """
        attend = partial(self.attention, mix=own, positions=positions)
        x = self.around_attention.add(x, attend, positions)  # (B, T, D), or (N, D)
        return self.around_feed_forward.add(x, self.feed_forward)


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
        x = self.around_attention.add(x, partial(self.attention, mix=own))
        # Keys and values of the memory do not change with the target: `cross` holds them ready.
        x = self.around_cross.add(x, partial(self.cross, mix=cross))
        return self.around_feed_forward.add(x, self.feed_forward)


def transformer_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers of a model, each of which computes by itself; none for models without such layers."""
    # For compilation and FSDP, which work layer by layer.
    return [part for part in model.modules() if isinstance(part, (EncoderLayer, DecoderLayer))]
