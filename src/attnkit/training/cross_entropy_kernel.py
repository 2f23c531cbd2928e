"""Triton kernel of cross-entropy, which overwrites logits by their gradient.

Each program reads a row of logits twice.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096  #: logits that a program holds at once


# Chunks begin anywhere in the targets: a variant for each alignment would be compiled in the middle of a training.
@triton.jit(do_not_specialize_on_alignment=["targets"])
def _row(
    logits, targets, norms, chosen, n_words, smoothing,
    gradient: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Write log Σ exp(logits) of a row, its target's logit, and the gradient.

    The gradient, softmax - (1 - smoothing) · onehot, overwrites the logits.
    """
    row = tl.program_id(0)
    start = logits + row.to(tl.int64) * n_words
    target = tl.load(targets + row)
    at = tl.arange(0, block)
    top = tl.full([block], -float("inf"), tl.float32)
    total = tl.zeros([block], tl.float32)
    # Each place of a block has a running maximum and sum of its own: they are joined once, at the end of the row.
    for begin in range(0, n_words, block):
        inside = begin + at < n_words
        x = tl.load(start + begin + at, mask=inside, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, x)
        finite = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - finite) + tl.exp(x - finite)
        top = higher
    highest = tl.max(top, 0)
    norm = highest + tl.log(tl.sum(total * tl.exp(top - highest), 0))
    tl.store(norms + row, norm)
    tl.store(chosen + row, tl.load(start + target).to(tl.float32))
    if gradient:
        for begin in range(0, n_words, block):
            inside = begin + at < n_words
            x = tl.load(start + begin + at, mask=inside, other=-float("inf")).to(tl.float32)
            error = tl.exp(x - norm) - tl.where(begin + at == target, 1.0 - smoothing, 0.0)
            tl.store(start + begin + at, error.to(logits.dtype.element_ty), mask=inside)


def cross_entropy_rows(logits: Tensor, targets: Tensor, smoothing: float, gradient: bool) -> tuple[Tensor, Tensor]:
    """Return log Σ exp(logits) and the targets' logits, (n,) each, of logits (n, V).

    Both are float32.

    With ``gradient``, the logits are overwritten by softmax - (1 - smoothing) · onehot.
    """
    n_rows, n_words = logits.shape
    norms, chosen = (torch.empty(n_rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    _row[(n_rows,)](logits, targets, norms, chosen, n_words, smoothing, gradient, BLOCK, num_warps=8)
    return norms, chosen
