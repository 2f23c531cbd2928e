"""Attention among the tokens of a passage, passages of many lengths lying end to end: one kernel call, no mask.

PyTorch has such a kernel (FlashAttention-2, Dao 2023) on CUDA alone, in half precision, without dropout and without a
bias on scores. Where it serves, products between tokens that do not see each other are never made.

Letters: B rows, H heads, T tokens of a row, d head width, P passages.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

_WIDEST = 256
"""Largest head width of the kernel."""
_MULTIPLE = 8
"""Head widths are multiples of this."""
_CAUSAL = (-1, 0)
_FREE = (-1, -1)


def supports_varlen(x: Tensor, d_head: int, dropout: float) -> bool:
    """Return whether the kernel serves tensors like x with heads so wide."""
    fits = d_head <= _WIDEST and d_head % _MULTIPLE == 0 and x.dtype in (torch.bfloat16, torch.float16)
    return fits and not dropout and x.device.type == "cuda" and _is_served(x.device)


@lru_cache
def _is_served(device: torch.device) -> bool:
    """Return whether PyTorch has the kernel for a GPU, Nvidia's from Ampere on, and says causality as a window.

    Older ones say it otherwise; a mask serves there.
    """
    fits = torch.version.hip is None and torch.cuda.get_device_capability(device) >= (8, 0)
    return fits and "window_size" in inspect.signature(_kernel()).parameters


def _kernel() -> Callable[..., Any]:
    """Return PyTorch's kernel, which is imported here since it brings the compiler with it."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn


def varlen_attention(query: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, causal: bool) -> Tensor:
    """Return the context (B, H, T, d) of softmax(q·k / √d) over the values of each token's own passage.

    Args:
        query: (B, H, T, d).
        keys: (B, H, T, d).
        values: (B, H, T, d).
        bounds: (P + 1,) int32, where each passage begins in the flattened rows, and where the last one ends. No
            passage is longer than a row.
        causal: a token sees none behind it.
    """
    batch, n_heads, length, width = query.shape
    # The kernel takes (tokens, H, d), rows end to end.
    q, k, v = (part.transpose(1, 2).reshape(batch * length, n_heads, width) for part in (query, keys, values))
    context: Tensor = _kernel()(q, k, v, bounds, bounds, length, length, window_size=_CAUSAL if causal else _FREE)
    return context.view(batch, length, n_heads, width).transpose(1, 2)  # back to (B, H, T, d)
