"""Attention as one operator, A(q, K, V) = Σᵢ p(a(kᵢ, q)) vᵢ.

The fastest equivalent form of each pair of functions is used. Kernel regression (``pool``) is a special case.

Letters: B batch, H heads, T queries, S keys, d width of queries and keys, d_v width of values, P passages, N tokens.
"""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention.alignment import AlignmentModule, Dot, Kernel, ScaledDot
from attnkit.models.attention.distribution import Distribution, normalize, softmax
from attnkit.models.attention.linear_attention import linear_attention
from attnkit.models.linear import HALF, drop
from attnkit.runtime.devices import has_triton

# PyTorch's fused CPU kernel computes bfloat16 products without oneDNN: forward and backward pass of a batch of captions
# (B 160, H 4, T 14, d 64) take 35 ms, against 4 ms with batched matrix products and 7.5 ms in float32. Up to this many
# scores per head, matrix products are used; above, the fused kernel in float32, whose memory does not grow with T x S.
PLAIN_SCORES = 256 * 256
PACKED_TILE = 128  #: tokens of a tile of the kernel for packed rows
PACKED_WIDTHS = (32, 64, 128)  #: head widths of the kernel for packed rows


@dataclass(frozen=True)
class AttentionScope:
    """Mask, causality and bias of an attention call; the default is full attention."""

    mask: Tensor | None = None  #: bool, True = may attend, broadcastable to (B, H, T, S)
    causal: bool = False  #: query i attends to keys 0..i only
    bias: Tensor | None = None  #: added to the scores, broadcastable to (B, H, T, S)
    bounds: Tensor | None = None
    """(P + 1,) int32, passage boundaries in the flattened rows, instead of a mask; requires ``supports_varlen``."""

    def allowed(self, n_queries: int, n_keys: int, device: torch.device) -> Tensor | None:
        """Return the bool mask including causality, or None if nothing is masked."""
        if not self.causal:
            return self.mask
        # True on and below the diagonal
        triangle = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device).tril()
        return triangle if self.mask is None else triangle & self.mask


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    align: AlignmentModule,
    distribute: Distribution,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute context (B, H, T, d_v) and weights (B, H, T, S) from the definition."""
    weights = AttentionFunction(align, distribute).weights(query, align.prepare(keys), AttentionScope(mask))
    return weights @ values, weights  # (B, H, T, S) @ (B, H, S, d_v)


class AttentionFunction(NamedTuple):
    """An alignment function paired with a distribution function."""

    align: AlignmentModule
    distribute: Distribution

    def weights(self, query: Tensor, prepared: Tensor, scope: AttentionScope) -> Tensor:
        """Return the weights (B, H, T, S) of queries over prepared keys.

        The scope's bias is added to the scores. Decoders prepare their keys once per sentence.
        """
        allowed = scope.allowed(query.shape[-2], prepared.shape[-2], query.device)
        if self.distribute is normalize and scope.bias is None:
            # Sums of tiny scores underflow; scores relative to the largest give the same weights.
            return normalize(self.align.relative(query, prepared, allowed), query, allowed).to(query.dtype)
        scores = self.align.score(query, prepared)  # (B, H, T, S)
        if scope.bias is not None:
            scores = scores + scope.bias  # ALiBi or relative position bias
        return self.distribute(scores, query, allowed).to(query.dtype)  # a float32 bias promotes the scores

    def context(
        self, query: Tensor, keys: Tensor, values: Tensor, scope: AttentionScope, dropout: float = 0.0
    ) -> Tensor:
        """Return the context (B, H, T, d_v) by the fastest equivalent computation.

        Dot x softmax, scaled or not, uses the fused kernel. Kernel x normalize runs in linear time if all queries share
        the mask and there is neither bias nor dropout. All other pairs are computed from the definition.
        """
        if self.distribute is softmax and isinstance(self.align, ScaledDot | Dot):  # weights are not materialized
            scale = None if isinstance(self.align, ScaledDot) else 1.0
            return scaled_dot(query, keys, values, scope, dropout, scale)
        one_mask = scope.mask is None or scope.mask.dim() < 2 or scope.mask.shape[-2] == 1
        plain = one_mask and scope.bias is None and not dropout
        # Associativity: φ(q)ᵀ(Σ φ(k) vᵀ) needs no T × S weights (Katharopoulos et al. 2020, eq. 5).
        if self.distribute is normalize and isinstance(self.align, Kernel) and plain:
            return linear_attention(query, keys, values, self.align.feature_map, scope.mask, scope.causal)
        weights = self.weights(query, self.align.prepare(keys), scope)
        # Dropout is applied to the weights, as in Vaswani et al. 2017 and later models.
        return drop(weights, dropout) @ values if dropout else weights @ values


def supports_varlen(x: Tensor, d_head: int, dropout: float) -> bool:
    """Return whether the variable-length kernel supports x and this head width."""
    fits = d_head <= 256 and d_head % 8 == 0 and x.dtype in HALF  # the kernel's own limits
    return fits and not dropout and x.device.type == "cuda" and _is_served(x.device)


@lru_cache
def _is_served(device: torch.device) -> bool:
    """Return whether the kernel supports this GPU (Ampere or later) and windows."""
    fits = torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
    return fits and "window_size" in inspect.signature(_kernel()).parameters


def _kernel() -> Callable[..., Any]:
    """Return PyTorch's variable-length attention kernel."""
    from torch.nn.attention.varlen import varlen_attn  # imported here, since it loads the compiler

    return varlen_attn


@dataclass(frozen=True)
class Passages:
    """The passage of each token, in the flattened rows."""

    starts: Tensor  #: (N,) int32, first token of the token's passage
    ends: Tensor  #: (N,) int32, one after the last token of the token's passage
    within: bool  #: whether no passage crosses a multiple of ``PACKED_TILE``: one kernel then computes all gradients

    @staticmethod
    def bounded(bounds: Tensor, n_rows: int, length: int) -> "Passages":
        """Return the passages of rows of ``length`` tokens; bounds (P + 1,) int32."""
        # The number of tokens is stated, since counting them would wait for the device.
        parts = (bounds[:-1], bounds[1:])
        starts, ends = (
            torch.repeat_interleave(part, bounds.diff(), output_size=n_rows * length).to(torch.int32) for part in parts
        )
        return Passages(starts, ends, length == PACKED_TILE)

    @staticmethod
    def whole(n_rows: int, length: int, device: torch.device) -> "Passages":
        """Return the passages of rows that are one passage each."""
        at = torch.arange(n_rows * length, dtype=torch.int32, device=device)
        starts = at - at % length
        return Passages(starts, starts + length, length == PACKED_TILE)


@dataclass(frozen=True)
class PackedAttention:
    """Self-attention of packed rows from the fused projection; copies no heads."""

    passages: Passages
    causal: bool
    rotations: Tensor | None = None
    """(positions, d) float32, sines, then cosines, by which queries and keys are rotated; None if not rotary."""

    def context(self, projected: Tensor, n_heads: int) -> Tensor:
        """Return the context (B, T, D) of queries, keys and values (B, T, 3 · D)."""
        from attnkit.models.attention.packed_attention import packed_attention  # slow to import

        passages, rows = self.passages, projected.flatten(0, 1)  # (N, 3 · D)
        out, _ = packed_attention(
            rows, self.rotations, passages.starts, passages.ends, n_heads, self.causal, passages.within
        )
        context: Tensor = out.view(*projected.shape[:2], -1)
        return context


def supports_packed(x: Tensor, d_head: int, dropout: float) -> bool:
    """Return whether the kernel supports inputs like x with this head width."""
    return (
        d_head in PACKED_WIDTHS and x.dtype in HALF and not dropout and x.device.type == "cuda" and has_triton(x.device)
    )


def varlen_attention(query: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, causal: bool) -> Tensor:
    """Return softmax(q·k / √d) · v within each passage, (B, H, T, d).

    Queries, keys and values are (B, H, T, d). ``bounds`` (P + 1,) int32 holds the start of each passage in the
    flattened rows and the end of the last one. No passage is longer than a row. If causal, later tokens are masked.
    """
    batch, n_heads, length, width = query.shape
    # The kernel expects (tokens, H, d), with rows concatenated.
    q, k, v = (part.transpose(1, 2).reshape(batch * length, n_heads, width) for part in (query, keys, values))
    window = (-1, 0) if causal else (-1, -1)  # tokens to the left and right; -1 is unlimited
    context: Tensor = _kernel()(q, k, v, bounds, bounds, length, length, window_size=window)
    return context.view(batch, length, n_heads, width).transpose(1, 2)  # back to (B, H, T, d)


def prefers_matmul(x: Tensor, n_scores: int) -> bool:
    """Return whether ``scaled_dot`` computes plain matrix products for inputs like x.

    It does so on CPUs in half precision, for at most ``PLAIN_SCORES`` scores per head. There, a bias costs one pass
    over the scores, and a mask four: two forward and two backward.
    """
    return x.device.type == "cpu" and x.dtype in HALF and n_scores <= PLAIN_SCORES


def scaled_dot(
    query: Tensor, keys: Tensor, values: Tensor, scope: AttentionScope, dropout: float = 0.0, scale: float | None = None
) -> Tensor:
    """Return softmax(q·k / √d + bias) · v, (B, H, T, d); fully masked rows give zeros.

    ``scale`` replaces 1 / √d, but not in packed rows.
    """
    if scope.bounds is not None:
        return varlen_attention(query, keys, values, scope.bounds, scope.causal)
    n_queries, n_keys = query.shape[-2], keys.shape[-2]
    if prefers_matmul(query, n_queries * n_keys):
        factor = query.shape[-1] ** -0.5 if scale is None else scale
        scores = (query * factor) @ keys.transpose(-1, -2)  # (B, H, T, S)
        if scope.bias is not None:
            same = scope.bias.dtype == scores.dtype
            scores = scores.add_(scope.bias) if same else scores + scope.bias  # the product has no other use
        weights = softmax(scores, query, scope.allowed(n_queries, n_keys, query.device))
        weights = weights.to(values.dtype)  # a float32 bias promotes the scores
        return drop(weights, dropout) @ values if dropout else weights @ values
    dtype = query.dtype
    if query.device.type == "cpu" and dtype in HALF:
        query, keys, values = query.float(), keys.float(), values.float()
    mask, causal = scope.mask, scope.causal
    if scope.bias is not None or (causal and mask is not None):
        # The kernel takes is_causal or a mask, not both.
        mask, causal = scope.allowed(n_queries, n_keys, query.device), False
    if scope.bias is not None:
        bias = scope.bias.to(query.dtype)
        mask = bias if mask is None else torch.where(mask, bias, -math.inf)  # additive: -inf where masked
    context = F.scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, is_causal=causal, dropout_p=dropout, scale=scale
    )
    return context.to(dtype)


class Gaussian(AlignmentModule):
    """Exponent of the Gaussian kernel, -|(q - k) w|² / 2, with bandwidth 1 / w.

    ``w`` is 1, or a single learned parameter.
    """

    w: Tensor

    def __init__(self, learned: bool = False) -> None:
        super().__init__()
        if learned:
            self.w = nn.Parameter(torch.ones(()))
        else:
            # A buffer: saved with the model, but not trained.
            self.register_buffer("w", torch.ones(()))

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (..., T, S); allocates (..., T, S, d)."""
        apart = (query.unsqueeze(-2) - prepared.unsqueeze(-3)) * self.w  # (..., T, S, d)
        return apart.square().sum(-1) / -2  # (..., T, S)


def pool(at: Tensor, x: Tensor, y: Tensor, kernel: Gaussian, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the kernel regression of points (x, y) at ``at``, and its weights (T, S).

    ``at`` and the result are (T,), ``x`` and ``y`` are (S,). ``mask`` (T, S) is True where a point may be used.
    """
    mask = None if mask is None else mask[None, None]  # (1, 1, T, S)
    query, keys, values = (numbers[None, None, :, None] for numbers in (at, x, y))  # (1, 1, T or S, 1)
    context, weights = attend(query, keys, values, kernel, softmax, mask)
    # Drop the batch, head and width dimensions of size 1.
    return context[0, 0, :, 0], weights[0, 0]


def leave_one_out(x: Tensor, y: Tensor, kernel: Gaussian) -> Tensor:
    """Return the kernel regression (S,) at each point from all other points.

    The bandwidth must be fitted to this curve: if points could use themselves, the narrowest kernel would always win.
    """
    # The diagonal is masked: no point uses itself.
    return pool(x, x, y, kernel, ~torch.eye(len(x), dtype=torch.bool, device=x.device))[0]
