"""Transformer layers, and self-attention in packed rows.

Layers receive masking and caching as functions, so that the same layer serves training and stepwise decoding. Rows with
a single passage are computed without a mask, rows with several passages with a block-diagonal mask. All rows take the
same path where that is faster: the variable-length kernel, or plain matrix products with one mask for all. On every
path a passage gives the same result as in a row of its own.

Letters: B rows, T tokens of a row, N chosen positions of the flattened rows, H heads, d head width, D model width, d_ff
inner width, K beams, C slots of the cache, P passages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.attend import (
    AttentionScope,
    PackedAttention,
    Passages,
    prefers_matmul,
    supports_packed,
    supports_varlen,
)
from attnkit.models.attention.multihead import HeadGroups, Mix, MultiHeadAttention, attend_within, spread_groups, take
from attnkit.models.attention.patterns import Pattern
from attnkit.models.attention.sparse import sparse_attention
from attnkit.models.kv_cache import DecodingState, GenericDecodingState
from attnkit.models.layer_config import LayerConfig
from attnkit.models.linear import Dropout, Linear, init_xavier
from attnkit.models.positions import AlibiBias, RelativeBias, Rotation, rotation_table

KeysAndValues = list[tuple[Tensor, Tensor]]  #: keys and values (B, H, T, d) per layer
# The tanh approximation of GELU is GPT-2's; trained weights fit only the variant they were trained with.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu_,  # overwrites the preceding product, which nothing else needs, not even the backward pass
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


@dataclass(frozen=True)
class PackedLayout:
    """Attention layout of a packed batch; rows with a single passage come first."""

    n_rows: int
    n_unmixed: int  #: number of leading rows that hold a single passage
    mask: Tensor | None = None  #: mask of the other rows, broadcastable to (B - n_unmixed, H, T, T)
    positions: Tensor | None = None
    """(B, T) int64, position of each token in its passage; None if all positions count from the start of the row."""
    bounds: Tensor | None = None
    """(P + 1,) int32, start of each passage in the flattened rows, and the end of the last one; None if unknown."""

    @staticmethod
    def unpacked(n_rows: int) -> PackedLayout:
        """Return the layout of rows with a single passage each and no padding."""
        return PackedLayout(n_rows, n_rows)

    @staticmethod
    def padded(real: Tensor) -> PackedLayout:
        """Return the layout of single-passage rows; ``real`` (B, T) is False at padding."""
        if bool(real.all()):  # waits for the device, but saves the mask
            return PackedLayout.unpacked(len(real))
        return PackedLayout(len(real), 0, real[:, None, None, :])

    @staticmethod
    def packed(n_whole: int, passages: Tensor, bounds: Tensor | None = None) -> PackedLayout:
        """Return the layout of rows with several passages.

        Args:
            n_whole: number of leading rows with a single passage.
            passages: (B, T) int, passage number of each token; adjacent tokens with the same number form a passage,
                and so does padding.
            bounds: passage boundaries as in the field, if known; finding them here would wait for the accelerator.
        """
        n_rows, length = passages.shape  # (B, T)
        if n_whole == n_rows:
            return PackedLayout.unpacked(n_rows)
        mixed = passages[n_whole:]
        mask = (mixed[:, :, None] == mixed[:, None, :])[:, None]  # (rows, 1, T, T): block diagonal
        at = torch.arange(length, device=passages.device)
        # True at the first token of each passage.
        begins = F.pad(passages[:, 1:] != passages[:, :-1], (1, 0), value=True)
        first = torch.where(begins, at, 0).cummax(dim=1).values  # (rows, T): where each token's passage starts
        return PackedLayout(n_rows, n_whole, mask, at - first, bounds)

    def to(self, device: torch.device | str) -> PackedLayout:
        """Return the layout on another device."""
        parts = (self.mask, self.positions, self.bounds)
        moved = [None if part is None else part.to(device, non_blocking=True) for part in parts]
        return PackedLayout(self.n_rows, self.n_unmixed, *moved)


class SelfAttentionContext(nn.Module):
    """Self-attention settings of a stack: bias, rotation, causality, sparse pattern."""

    __call__: Callable[..., Mix]

    def __init__(
        self, config: LayerConfig, causal: bool, pattern: Pattern | None = None, rope_base: float | None = None
    ) -> None:
        """Store the settings; ``rope_base`` replaces that of the configuration."""
        super().__init__()
        self.causal, self.dropout, self.pattern = causal, config.attention_dropout, pattern
        self.rotary, self.d_head = config.positions == "rotary", config.d_head
        self.rope_base = config.rope_base if rope_base is None else rope_base
        self.rope_scaling = config.rope_scaling
        self.grouped = config.n_kept_heads != config.n_heads
        self.tiles_from = 0  #: length of rows from which a pattern is computed tile by tile
        self.plain = config.plain_attention
        # One bias serves all layers of a stack, as in T5 (Raffel et al. 2020) and ALiBi (Press et al. 2022).
        self.bias: AlibiBias | RelativeBias | None = None
        if config.positions == "alibi":
            self.bias = AlibiBias(config.n_heads)
        elif config.positions == "relative":
            sizes = config.relative_buckets, config.relative_distance
            self.bias = RelativeBias(config.n_heads, not causal, *sizes)

    def forward(
        self, x: Tensor, layout: PackedLayout, seen: list[Tensor] | None = None, kept: KeysAndValues | None = None
    ) -> Mix:
        """Return the self-attention function of a pass over x (B, T, D), for all layers.

        Each layer's weights (B, H, T, T) are appended to ``seen``, its rotated keys and its values (B, H, T, d) to
        ``kept``.
        """
        length = x.shape[1]
        if kept is None and seen is None and (packed := self._packed(x, layout)) is not None:
            return packed
        mix = self._mix(x, layout, seen)
        # Positions restart with every passage, so packed and unpacked rows give equal scores.
        turn = self._rotation(0, length, x, layout.positions)

        def turned(heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            # Rotation acts on queries and keys, never on values (Su et al. 2021).
            query, keys = (query, keys) if turn is None else (turn(query), turn(keys))
            if kept is not None:
                kept.append((keys, values))
            keys, values = (spread_groups(part, query.shape[1]) for part in (keys, values))
            return mix(heads, query, keys, values)

        return turned

    def step(self, x: Tensor, state: DecodingState | GenericDecodingState) -> list[Mix]:
        """Open a decoding step of the state; return each layer's mix for x (B, K, D)."""
        distance = state.begin_step(x.shape[1])  # (1, C): key step minus query step, for C cache slots
        if self.bias is not None:
            state.add_bias(self.bias(distance))
        if self.pattern is not None:
            # Distances are 0 or negative: a key's position is the query's plus its distance.
            visible = self.pattern.sees(state.n_steps, state.n_steps + distance)
            state.add_bias(torch.zeros_like(distance, dtype=torch.float32).masked_fill_(~visible, -math.inf)[None])
        # One position serves all beams: they are at the same step.
        turn = self._rotation(state.n_steps, state.n_steps + 1, x)

        def turned(layer: int, heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            query, keys = (query, keys) if turn is None else (turn(query), turn(keys))
            return state.self_attend(layer, heads, query, keys, values)

        return [partial(turned, layer) for layer in range(state.n_layers)]

    def _packed(self, x: Tensor, layout: PackedLayout) -> PackedAttention | None:
        """Return attention by the kernel for packed rows, or None where it does not apply."""
        dropout = self.dropout if self.training else 0.0
        usual = self.plain and self.bias is None and self._pattern_of(x.shape[1]) is None and not self.grouped
        if not usual or not supports_packed(x, self.d_head, dropout):
            return None
        n_rows, length = x.shape[:2]
        if layout.bounds is not None:
            passages = Passages.bounded(layout.bounds, n_rows, length)
        elif layout.mask is None and layout.n_unmixed == n_rows:
            passages = Passages.whole(n_rows, length, x.device)
        else:
            return None
        table = None
        if self.rotary:
            table = rotation_table(length, self.d_head, x.device, self.rope_base, self.rope_scaling)
        return PackedAttention(passages, self.causal, table)

    def _pattern_of(self, length: int) -> Pattern | None:
        """Return the pattern of rows of a length; None if they are within its window."""
        return None if self.pattern is None or self.pattern.sees_all(length) else self.pattern

    def _mix(self, x: Tensor, layout: PackedLayout, seen: list[Tensor] | None) -> Callable[..., Tensor]:
        """Return the fastest mix for queries and keys that are already rotated."""
        pattern, own_bias, mask, n_whole = self._pattern_of(x.shape[1]), self.bias, layout.mask, layout.n_unmixed
        dropout = self.dropout if self.training else 0.0
        one_mask = mask is None or mask.shape[-2] == 1  # tiles take no passages, and drop no weights
        long = x.shape[1] >= self.tiles_from
        if pattern is not None and seen is None and one_mask and not dropout and long:
            # Tile by tile: scores (T, T) are never materialized.
            return lambda heads, query, keys, values: sparse_attention(query, keys, values, pattern, mask, own_bias)
        if pattern is not None:
            at = torch.arange(x.shape[1], device=x.device)
            # Recorded weights need the dense form: the pattern becomes a mask (T, T), or (B, 1, T, T).
            visible = pattern.sees(at[:, None], at[None, :])
            if mask is not None:
                whole = visible.expand(n_whole, 1, *visible.shape)
                visible = torch.cat((whole, visible & mask)) if n_whole else visible & mask
            mask, n_whole = visible, 0
        bias = None
        if own_bias is not None:
            at = torch.arange(x.shape[1], device=x.device)
            bias = own_bias(at[None, :] - at[:, None])  # (H, T, T)
        ragged = layout.bounds is not None and self.plain and bias is None and seen is None and pattern is None
        # A mask as bias would give NaN in fully masked rows, which padding may cause.
        visible_to_self = pattern is None and (mask is None or mask.shape[-2] > 1)
        if ragged and supports_varlen(x, self.d_head, dropout):
            together, n_whole = AttentionScope(None, self.causal, None, layout.bounds), 0
        elif self.plain and visible_to_self and prefers_matmul(x, x.shape[1] ** 2):
            # One bias for all rows costs less than splitting single-passage rows from mixed rows and joining them.
            together, n_whole = AttentionScope(None, False, self._as_bias(x, layout, bias)), 0
        else:
            together = AttentionScope(mask, self.causal, bias)
        alone = AttentionScope(None, self.causal, bias)
        if n_whole == layout.n_rows or not n_whole:
            return attend_within(together if not n_whole else alone, dropout, seen)

        def mix(heads: HeadGroups, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            # torch.split, not slices: the gradients of two slices are two full tensors and their sum.
            sizes = [n_whole, layout.n_rows - n_whole]
            sides = zip(*(torch.split(part, sizes) for part in (query, keys, values)), strict=True)
            weights: list[Tensor] | None = None if seen is None else []
            parts = [
                attend_within(scope, dropout, weights)(heads, *side)
                for scope, side in zip((alone, together), sides, strict=True)
            ]
            if seen is not None and weights:
                seen.append(torch.cat(weights))
            return torch.cat(parts)

        return mix

    def _as_bias(self, x: Tensor, layout: PackedLayout, bias: Tensor | None) -> Tensor | None:
        """Merge causality, mask and bias into one bias, -inf if masked; None if all unset."""
        if layout.mask is not None:
            shut = x.new_zeros(layout.n_rows, 1, *layout.mask.shape[2:])  # (B, 1, T, T); unmixed rows stay 0
            shut[layout.n_unmixed :].masked_fill_(~layout.mask, -math.inf)
        elif self.causal:
            shut = x.new_zeros(x.shape[1], x.shape[1])
        else:
            return bias
        if self.causal:
            # triu(1): keys after the query.
            shut.masked_fill_(torch.ones(shut.shape[-2:], dtype=torch.bool, device=x.device).triu(1), -math.inf)
        return shut if bias is None else shut + bias

    def _rotation(self, start: int, stop: int, x: Tensor, positions: Tensor | None = None) -> Rotation | None:
        """Return the rotation of start..stop or of positions (B, T); None if not rotary."""
        if not self.rotary:
            return None
        return Rotation(start, stop, x.new_empty(0, self.d_head), positions, self.rope_base, self.rope_scaling)


class Residual(nn.Module):
    """Residual connection and norm around a sublayer f, with dropout on f(x).

    Post-norm: norm(x + f(x)) (Vaswani et al. 2017); pre-norm: x + f(norm(x)), which is stable without warmup (Xiong et
    al. 2020).
    """

    def __init__(self, config: LayerConfig, normed: bool = True) -> None:
        """Build the norm, or none if x is normalized before, with pre-norm only."""
        super().__init__()
        self.pre = config.norm == "pre"
        self.norm = build_norm(config) if normed else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def add(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], positions: Tensor | None = None) -> Tensor:
        """Return the residual sum (B, T, D), or (N, D) at the given positions only."""
        y = sublayer(self.norm(x) if self.pre else x)
        x = x if positions is None else take(x, positions)
        x = x + self.dropout(y)
        return x if self.pre else self.norm(x)


def build_norm(config: LayerConfig) -> nn.LayerNorm | nn.RMSNorm:
    """Build LayerNorm, or RMSNorm: x / √(mean(x²) + ε) · g (Zhang and Sennrich 2019)."""
    if config.normalization == "rms":
        return nn.RMSNorm(config.d_model, eps=config.norm_eps)
    return nn.LayerNorm(config.d_model, eps=config.norm_eps, bias=config.norm_bias)


def top_norm(config: LayerConfig) -> nn.Module:
    """Build the final norm of a stack: a norm for pre-norm, identity for post-norm."""
    return build_norm(config) if config.norm == "pre" else nn.Identity()


class FeedForward(nn.Module):
    """Feed-forward sublayer: two linear maps per position, with an activation between.

    With ``glu``, the activation is multiplied by a second map of the input: down(act(up(x)) * gate(x)) (Shazeer 2020).
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        # D to d_ff, and back.
        self.up = Linear(config.d_model, config.d_ff, bias=config.bias)
        self.gate = Linear(config.d_model, config.d_ff, bias=config.bias) if config.glu else None
        self.down = Linear(config.d_ff, config.d_model, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)
        init_xavier(self.up, self.gate, self.down)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, D) to (B, T, D)."""
        inner = self.activation(self.up(x))  # (B, T, d_ff)
        if self.gate is not None:
            inner = inner * self.gate(x)
        return self.down(self.dropout(inner))  # (B, T, D)


def build_attention(config: LayerConfig, n_parts: int = 3) -> MultiHeadAttention:
    """Build multi-head attention; n_parts is 3 for self-attention, 1 for a memory."""
    functions = config.alignment, config.distribution, config.attention_options
    n_kept, d_head = config.n_kept_heads, config.d_head
    return MultiHeadAttention(
        config.d_model, config.n_heads, n_parts, *functions, bias=config.bias, n_kept_heads=n_kept, d_head=d_head
    )


class EncoderLayer(nn.Module):
    """Transformer encoder layer: self-attention, then feed-forward."""

    def __init__(self, config: LayerConfig, normed: bool = False) -> None:
        """Build the sublayers; ``normed`` inputs need no norm before attention."""
        super().__init__()
        self.attention = build_attention(config)
        self.feed_forward = FeedForward(config)
        self.around_attention = Residual(config, normed=not normed)
        self.around_feed_forward = Residual(config)

    def forward(self, x: Tensor, own: Mix, positions: Tensor | None = None) -> Tensor:
        """Return (B, T, D), or (N, D) for positions (N,) of the flattened rows only.

        ``own`` computes self-attention from (heads, query, keys, values).
        """
        attend = partial(self.attention, mix=own, positions=positions)
        x = self.around_attention.add(x, attend, positions)  # (B, T, D), or (N, D)
        return self.around_feed_forward.add(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Transformer decoder layer: self-attention, cross-attention, then feed-forward."""

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
        """Return (B, T, D): self-attention by ``own``, cross-attention by ``cross``."""
        x = self.around_attention.add(x, partial(self.attention, mix=own))
        # Keys and values of the memory do not depend on the target: `cross` already has them.
        x = self.around_cross.add(x, partial(self.cross, mix=cross))
        return self.around_feed_forward.add(x, self.feed_forward)


def transformer_layers(model: nn.Module) -> list[nn.Module]:
    """Return the Transformer layers of a model; empty for other models."""
    # For compilation and FSDP, which work layer by layer.
    return [part for part in model.modules() if isinstance(part, (EncoderLayer, DecoderLayer))]


def word_vectors(model: nn.Module) -> list[Tensor]:
    """Return the word embedding matrices, (V, D) each, source first and target last."""
    # Segment embeddings are not word vectors.
    parts = [part for name, part in model.named_modules() if not name.endswith("segments")]
    return [part.weight for part in parts if isinstance(part, nn.Embedding)]
