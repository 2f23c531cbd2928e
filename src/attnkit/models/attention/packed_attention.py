"""Self-attention within passages from the fused projection, a PyTorch operator.

Compiled layers call it too. On a GPU it is ``packed_kernel``; on a CPU, where only tests need it, the definition.

Letters: N tokens of all rows, H heads, d head width, D = H · d model width.
"""

import math

import torch
from torch import Tensor


@torch.library.custom_op("attnkit::packed_attention", mutates_args=())
def packed_attention(
    qkv: Tensor, rotations: Tensor | None, starts: Tensor, ends: Tensor, n_heads: int, causal: bool, within: bool
) -> tuple[Tensor, Tensor]:
    """Return the context (N, D) of a projection (N, 3 · D).

    Also returns the normalizers of the weights (H, N), in base 2.
    """
    _, _, values, weights, norms = _definition(qkv, rotations, starts, ends, n_heads, causal)
    return (weights @ values).transpose(0, 1).reshape(len(qkv), -1), norms


@packed_attention.register_kernel("cuda")
def _attention_cuda(
    qkv: Tensor, rotations: Tensor | None, starts: Tensor, ends: Tensor, n_heads: int, causal: bool, within: bool
) -> tuple[Tensor, Tensor]:
    from attnkit.models.attention.packed_kernel import forward  # needs Triton

    return forward(qkv, rotations, starts, ends, n_heads, causal)


@packed_attention.register_fake
def _attention_shapes(
    qkv: Tensor, rotations: Tensor | None, starts: Tensor, ends: Tensor, n_heads: int, causal: bool, within: bool
) -> tuple[Tensor, Tensor]:
    n_tokens = qkv.shape[0]
    return qkv.new_empty(n_tokens, qkv.shape[1] // 3), qkv.new_empty(n_heads, n_tokens, dtype=torch.float32)


@torch.library.custom_op("attnkit::packed_attention_backward", mutates_args=())
def _gradient(
    change: Tensor, qkv: Tensor, rotations: Tensor | None, out: Tensor, norms: Tensor, starts: Tensor, ends: Tensor,
    n_heads: int, causal: bool, within: bool,
) -> Tensor:  # fmt: skip
    """Return the gradient of a projection (N, 3 · D), given its context's (N, D)."""
    query, keys, values, weights, _ = _definition(qkv, rotations, starts, ends, n_heads, causal)
    dy = change.view(len(qkv), n_heads, -1).transpose(0, 1)  # (H, N, d)
    dweights = dy @ values.transpose(1, 2)  # (H, N, N)
    # The gradient of softmax, and of the scale.
    dscores = weights * (dweights - (weights * dweights).sum(-1, keepdim=True)) * query.shape[-1] ** -0.5
    parts = [dscores @ keys, dscores.transpose(1, 2) @ query, weights.transpose(1, 2) @ dy]  # (H, N, d) each
    if rotations is not None:
        parts[:2] = _turn(parts[:2], rotations, starts, -1)
    return torch.stack(parts).permute(2, 0, 1, 3).reshape(qkv.shape)


@_gradient.register_kernel("cuda")
def _gradient_cuda(
    change: Tensor, qkv: Tensor, rotations: Tensor | None, out: Tensor, norms: Tensor, starts: Tensor, ends: Tensor,
    n_heads: int, causal: bool, within: bool,
) -> Tensor:  # fmt: skip
    from attnkit.models.attention.packed_kernel import backward

    return backward(change.contiguous(), qkv, rotations, out, norms, starts, ends, n_heads, causal, within)


@_gradient.register_fake
def _gradient_shape(
    change: Tensor, qkv: Tensor, rotations: Tensor | None, out: Tensor, norms: Tensor, starts: Tensor, ends: Tensor,
    n_heads: int, causal: bool, within: bool,
) -> Tensor:  # fmt: skip
    return torch.empty_like(qkv)


def _keep(ctx: object, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:  # type: ignore[type-arg]
    qkv, rotations, starts, ends, *settings = inputs
    ctx.save_for_backward(qkv, rotations, *output, starts, ends)  # type: ignore[attr-defined]
    ctx.settings = settings  # type: ignore[attr-defined]


def _backward(ctx: object, change: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    grad = _gradient(change, *ctx.saved_tensors, *ctx.settings)  # type: ignore[attr-defined]
    return grad, None, None, None, None, None, None


packed_attention.register_autograd(_backward, setup_context=_keep)


def _definition(
    qkv: Tensor, rotations: Tensor | None, starts: Tensor, ends: Tensor, n_heads: int, causal: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys, values (H, N, d), weights (H, N, N), normalizers (H, N).

    Queries and keys are rotated.
    """
    n_tokens = len(qkv)
    query, keys, values = qkv.view(n_tokens, 3, n_heads, -1).permute(1, 2, 0, 3).unbind(0)  # (H, N, d)
    if rotations is not None:
        query, keys = _turn([query, keys], rotations, starts, 1)
    at = torch.arange(n_tokens, device=qkv.device)
    seen = (at >= starts[:, None]) & (at < ends[:, None])  # (N, N)
    if causal:
        seen = seen & (at <= at[:, None])
    scores = (query @ keys.transpose(1, 2) * query.shape[-1] ** -0.5).masked_fill(~seen, -math.inf)  # (H, N, N)
    return query, keys, values, scores.softmax(-1), scores.float().logsumexp(-1) / math.log(2)


def _turn(parts: list[Tensor], rotations: Tensor, starts: Tensor, sign: int) -> list[Tensor]:
    """Rotate (H, N, d) by the tokens' positions in their passages; back for sign -1."""
    positions = torch.arange(len(starts), device=starts.device) - starts
    sine, cosine = rotations[positions].to(parts[0].dtype).chunk(2, dim=-1)  # (N, d / 2) each
    halves = [part.chunk(2, dim=-1) for part in parts]
    return [torch.cat((a * cosine - sign * b * sine, b * cosine + sign * a * sine), dim=-1) for a, b in halves]
