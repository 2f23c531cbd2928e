"""Triton kernels for self-attention within the passages of packed rows.

They read queries, keys and values where the fused projection left them, and write the context and the gradients in the
same order, so that no head is ever copied. Softmax is computed online, and the backward pass recomputes the weights
from their normalizers (Dao et al. 2022, algorithms 1 and 4).

Tokens of all rows are numbered consecutively. A tile of queries visits only the keys of its own passages. If no passage
crosses the border of a tile, a single kernel computes all gradients of a tile.

Letters: N tokens, H heads, d head width. A token of the projection is 3 · H · d numbers: queries, keys, values.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 128  #: tokens of a tile whose passages all lie within it
LOG2E = math.log2(math.e)  #: exp(x) = 2^(x log₂e): the GPU has an instruction for powers of two


@triton.jit
def _load(pointer, rows, stride, at, real):
    """Load the elements ``at`` of the given tokens; 0 beyond the last token."""
    return tl.load(pointer + rows.to(tl.int64)[:, None] * stride + at[None, :], mask=real[:, None], other=0.0)


@triton.jit
def _store(pointer, rows, stride, at, real, x):
    """Store the elements ``at`` of the given tokens, up to the last token."""
    where = pointer + rows.to(tl.int64)[:, None] * stride + at[None, :]
    tl.store(where, x.to(pointer.dtype.element_ty), mask=real[:, None])


@triton.jit
def _rotate(x, table, positions, real, n: tl.constexpr, d: tl.constexpr, back: tl.constexpr):
    """Rotate each pair (x_i, x_(i+d/2)) of a tile (n, d) by its angle.

    The table has sines, then cosines.
    """
    half: tl.constexpr = d // 2
    at = positions[:, None] * d + tl.arange(0, half)[None, :]
    sine = tl.load(table + at, mask=real[:, None], other=0.0)
    cosine = tl.load(table + at + half, mask=real[:, None], other=0.0)
    if back:
        sine = -sine
    first, second = tl.split(tl.permute(tl.reshape(x.to(tl.float32), [n, 2, half]), [0, 2, 1]))
    turned = tl.join(first * cosine - second * sine, second * cosine + first * sine)
    return tl.reshape(tl.permute(turned, [0, 2, 1]), [n, d]).to(x.dtype)


@triton.jit
def _turned(
    pointer, table, starts, rows, stride, at, real, n: tl.constexpr, d: tl.constexpr, rotary: tl.constexpr
):  # fmt: skip
    """Load queries or keys; rotate them by the positions in their passages if rotary."""
    x = _load(pointer, rows, stride, at, real)
    if rotary:
        positions = rows - tl.load(starts + rows, mask=real, other=0)
        x = _rotate(x, table, positions, real, n, d, False)
    return x


@triton.jit
def _own(starts, ends, rows, n_tokens):
    """Return which tokens exist, and where their passages begin and end."""
    real = rows < n_tokens
    return real, tl.load(starts + rows, mask=real, other=0), tl.load(ends + rows, mask=real, other=0)


@triton.jit
def _span(starts, ends, tile, size: tl.constexpr, n_tokens):
    """Return where the first passage of a tile begins, and the last one ends."""
    return tl.load(starts + tile * size), tl.load(ends + tl.minimum(tile * size + size, n_tokens) - 1)


@triton.jit
def _forward(
    qkv, table, starts, ends, out, norms, n_tokens, scale,
    n_heads: tl.constexpr, d: tl.constexpr, causal: tl.constexpr, rotary: tl.constexpr,
    queries: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """Write the context (N, H, d) of a tile of queries of a head.

    Also writes the normalizers (H, N), in base 2.
    """
    tile, head = tl.program_id(0), tl.program_id(1)
    width: tl.constexpr = n_heads * d
    rows = tile * queries + tl.arange(0, queries)
    real, start, end = _own(starts, ends, rows, n_tokens)
    first, last = _span(starts, ends, tile, queries, n_tokens)
    if causal:
        last = tl.minimum(last, tile * queries + queries)
    at = head * d + tl.arange(0, d)
    q = _turned(qkv, table, starts, rows, 3 * width, at, real, queries, d, rotary)
    top = tl.full([queries], -float("inf"), tl.float32)
    total = tl.zeros([queries], tl.float32)
    context = tl.zeros([queries, d], tl.float32)
    for begin in range(first, last, keys):
        cols = begin + tl.arange(0, keys)
        k = _turned(qkv + width, table, starts, cols, 3 * width, at, cols < last, keys, d, rotary)
        v = _load(qkv + 2 * width, cols, 3 * width, at, cols < last)
        scores = tl.dot(q, tl.trans(k)) * scale
        seen = (cols[None, :] >= start[:, None]) & (cols[None, :] < end[:, None])
        if causal:
            seen = seen & (cols[None, :] <= rows[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        finite = tl.where(higher == -float("inf"), 0.0, higher)  # as long as no key was visible
        weights = tl.exp2(scores - finite[:, None])
        shrunk = tl.exp2(top - finite)
        total = total * shrunk + tl.sum(weights, 1)
        context = tl.dot(weights.to(v.dtype), v, context * shrunk[:, None])
        top = higher
    total = tl.where(real, total, 1.0)  # every real token sees itself
    _store(out, rows, width, at, real, context / total[:, None])
    tl.store(norms + head * n_tokens + rows, top + tl.log2(total), mask=real)


@triton.jit
def _backward_within(
    qkv, table, starts, ends, norms, change, grad, n_tokens, scale,
    n_heads: tl.constexpr, d: tl.constexpr, causal: tl.constexpr, rotary: tl.constexpr, queries: tl.constexpr,
):  # fmt: skip
    """Write all gradients of a tile of a head; no passage may cross its border."""
    tile, head = tl.program_id(0), tl.program_id(1)
    width: tl.constexpr = n_heads * d
    rows = tile * queries + tl.arange(0, queries)
    real, start, end = _own(starts, ends, rows, n_tokens)
    norm = tl.load(norms + head * n_tokens + rows, mask=real, other=0.0)
    at = head * d + tl.arange(0, d)
    q = _turned(qkv, table, starts, rows, 3 * width, at, real, queries, d, rotary)
    k = _turned(qkv + width, table, starts, rows, 3 * width, at, real, queries, d, rotary)
    v = _load(qkv + 2 * width, rows, 3 * width, at, real)
    dy = _load(change, rows, width, at, real)
    # Transposed, keys by queries: then the left side of all products but one is in registers.
    scores = tl.dot(k, tl.trans(q)) * scale
    seen = (rows[:, None] >= start[None, :]) & (rows[:, None] < end[None, :])
    if causal:
        seen = seen & (rows[:, None] <= rows[None, :])
    weights = tl.where(seen, tl.exp2(scores - norm[None, :]), 0.0)
    _store(grad + 2 * width, rows, 3 * width, at, real, tl.dot(weights.to(dy.dtype), dy))
    dweights = tl.dot(v, tl.trans(dy))
    dscores = (weights * (dweights - tl.sum(weights * dweights, 0)[None, :])).to(q.dtype)
    ln2: tl.constexpr = 0.6931471805599453  # the scale is that of powers of two
    dk = tl.dot(dscores, q) * (scale * ln2)
    if rotary:
        dk = _rotate(dk, table, rows - start, real, queries, d, True)
    _store(grad + width, rows, 3 * width, at, real, dk)
    dq = tl.dot(tl.trans(dscores), k) * (scale * ln2)
    if rotary:
        dq = _rotate(dq, table, rows - start, real, queries, d, True)
    _store(grad, rows, 3 * width, at, real, dq)


@triton.jit
def _sums(out, change, sums, n_tokens, n_heads: tl.constexpr, d: tl.constexpr, queries: tl.constexpr):
    """Write Σ y · dy (H, N): what softmax subtracts from the gradients of the weights."""
    tile, head = tl.program_id(0), tl.program_id(1)
    rows = tile * queries + tl.arange(0, queries)
    real = rows < n_tokens
    at = head * d + tl.arange(0, d)
    y = _load(out, rows, n_heads * d, at, real).to(tl.float32)
    dy = _load(change, rows, n_heads * d, at, real).to(tl.float32)
    tl.store(sums + head * n_tokens + rows, tl.sum(y * dy, 1), mask=real)


@triton.jit
def _backward_keys(
    qkv, table, starts, ends, norms, sums, change, grad, n_tokens,
    scale, n_heads: tl.constexpr, d: tl.constexpr, causal: tl.constexpr, rotary: tl.constexpr,
    queries: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a tile of keys and values of a head."""
    tile, head = tl.program_id(0), tl.program_id(1)
    width: tl.constexpr = n_heads * d
    cols = tile * keys + tl.arange(0, keys)
    # Passages are symmetric: the queries that see a key are those in its own passage.
    real, start, end = _own(starts, ends, cols, n_tokens)
    first, last = _span(starts, ends, tile, keys, n_tokens)
    if causal:
        first = tile * keys
    at = head * d + tl.arange(0, d)
    k = _turned(qkv + width, table, starts, cols, 3 * width, at, real, keys, d, rotary)
    v = _load(qkv + 2 * width, cols, 3 * width, at, real)
    dk = tl.zeros([keys, d], tl.float32)
    dv = tl.zeros([keys, d], tl.float32)
    for begin in range(first, last, queries):
        rows = begin + tl.arange(0, queries)
        inside = rows < last
        q = _turned(qkv, table, starts, rows, 3 * width, at, inside, queries, d, rotary)
        dy = _load(change, rows, width, at, inside)
        norm = tl.load(norms + head * n_tokens + rows, mask=inside, other=0.0)
        total = tl.load(sums + head * n_tokens + rows, mask=inside, other=0.0)
        seen = (rows[None, :] >= start[:, None]) & (rows[None, :] < end[:, None])
        if causal:
            seen = seen & (cols[:, None] <= rows[None, :])
        weights = tl.where(seen, tl.exp2(tl.dot(k, tl.trans(q)) * scale - norm[None, :]), 0.0)
        dv = tl.dot(weights.to(dy.dtype), dy, dv)
        dscores = weights * (tl.dot(v, tl.trans(dy)) - total[None, :])
        dk = tl.dot(dscores.to(q.dtype), q, dk)
    ln2: tl.constexpr = 0.6931471805599453
    dk = dk * (scale * ln2)
    if rotary:
        dk = _rotate(dk, table, cols - start, real, keys, d, True)
    _store(grad + width, cols, 3 * width, at, real, dk)
    _store(grad + 2 * width, cols, 3 * width, at, real, dv)


@triton.jit
def _backward_queries(
    qkv, table, starts, ends, norms, sums, change, grad, n_tokens,
    scale, n_heads: tl.constexpr, d: tl.constexpr, causal: tl.constexpr, rotary: tl.constexpr,
    queries: tl.constexpr, keys: tl.constexpr,
):  # fmt: skip
    """Write the gradients of a tile of queries of a head."""
    tile, head = tl.program_id(0), tl.program_id(1)
    width: tl.constexpr = n_heads * d
    rows = tile * queries + tl.arange(0, queries)
    real, start, end = _own(starts, ends, rows, n_tokens)
    first, last = _span(starts, ends, tile, queries, n_tokens)
    if causal:
        last = tl.minimum(last, tile * queries + queries)
    at = head * d + tl.arange(0, d)
    q = _turned(qkv, table, starts, rows, 3 * width, at, real, queries, d, rotary)
    dy = _load(change, rows, width, at, real)
    norm = tl.load(norms + head * n_tokens + rows, mask=real, other=0.0)
    total = tl.load(sums + head * n_tokens + rows, mask=real, other=0.0)
    dq = tl.zeros([queries, d], tl.float32)
    for begin in range(first, last, keys):
        cols = begin + tl.arange(0, keys)
        k = _turned(qkv + width, table, starts, cols, 3 * width, at, cols < last, keys, d, rotary)
        v = _load(qkv + 2 * width, cols, 3 * width, at, cols < last)
        seen = (cols[None, :] >= start[:, None]) & (cols[None, :] < end[:, None])
        if causal:
            seen = seen & (cols[None, :] <= rows[:, None])
        weights = tl.where(seen, tl.exp2(tl.dot(q, tl.trans(k)) * scale - norm[:, None]), 0.0)
        dscores = weights * (tl.dot(dy, tl.trans(v)) - total[:, None])
        dq = tl.dot(dscores.to(k.dtype), k, dq)
    ln2: tl.constexpr = 0.6931471805599453
    dq = dq * (scale * ln2)
    if rotary:
        dq = _rotate(dq, table, rows - start, real, queries, d, True)
    _store(grad, rows, 3 * width, at, real, dq)


class Tiles(NamedTuple):
    """Sizes of a kernel's tiles, and how the compiler schedules it."""

    queries: int
    keys: int
    warps: int
    stages: int


# Measured on an H200, 65,536 tokens, 12 heads of 64 (docs/log/2026-11-28-gpu-quarter-hour.md).
FORWARD = Tiles(64, 64, 4, 3)
WITHIN = Tiles(TILE, TILE, 8, 1)
KEYS = QUERIES = Tiles(64, 64, 4, 2)


def forward(
    qkv: Tensor, table: Tensor | None, starts: Tensor, ends: Tensor, n_heads: int, causal: bool, tiles: Tiles = FORWARD
) -> tuple[Tensor, Tensor]:
    """Return the context (N, D) and the normalizers (H, N) of a projection (N, 3 · D).

    ``table`` (positions, d) float32 has the sines, then the cosines of rotary positions. ``starts`` and ``ends`` (N,)
    int32 hold the first token of each token's passage, and the one after its last.
    """
    n_tokens, d = len(qkv), qkv.shape[1] // (3 * n_heads)
    out, norms = qkv.new_empty(n_tokens, n_heads * d), qkv.new_empty(n_heads, n_tokens, dtype=torch.float32)
    _forward[triton.cdiv(n_tokens, tiles.queries), n_heads](
        qkv, qkv if table is None else table, starts, ends, out, norms, n_tokens, LOG2E / math.sqrt(d), n_heads, d,
        causal, table is not None, tiles.queries, tiles.keys, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return out, norms


def backward(
    change: Tensor, qkv: Tensor, table: Tensor | None, out: Tensor, norms: Tensor, starts: Tensor, ends: Tensor,
    n_heads: int, causal: bool, within: bool, tiles: tuple[Tiles, Tiles, Tiles] = (WITHIN, KEYS, QUERIES),
) -> Tensor:  # fmt: skip
    """Return the gradient of a projection (N, 3 · D), given its context's (N, D).

    ``within`` tells that no passage crosses a multiple of ``TILE``.
    """
    n_tokens, d = len(qkv), qkv.shape[1] // (3 * n_heads)
    grad, scale, rotary = torch.empty_like(qkv), LOG2E / math.sqrt(d), table is not None
    turns = qkv if table is None else table
    if within and d <= 64:  # wider heads need more shared memory than GPUs of consumers have
        one = tiles[0]
        _backward_within[triton.cdiv(n_tokens, TILE), n_heads](
            qkv, turns, starts, ends, norms, change, grad, n_tokens, scale, n_heads, d, causal, rotary, TILE,
            num_warps=one.warps, num_stages=one.stages,
        )  # fmt: skip
        return grad
    sums = torch.empty_like(norms)
    _sums[triton.cdiv(n_tokens, TILE), n_heads](out, change, sums, n_tokens, n_heads, d, TILE)
    shared = qkv, turns, starts, ends, norms, sums, change, grad, n_tokens, scale, n_heads, d, causal, rotary
    for kernel, one, size in (
        (_backward_keys, tiles[1], tiles[1].keys),
        (_backward_queries, tiles[2], tiles[2].queries),
    ):
        kernel[triton.cdiv(n_tokens, size), n_heads](
            *shared, one.queries, one.keys, num_warps=one.warps, num_stages=one.stages
        )
    return grad
