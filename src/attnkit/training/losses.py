"""Losses as sums; the training loop divides them by global counts.

Letters: N rows with a target, D model width, V vocabulary, n rows of a chunk.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnkit.runtime.devices import HAS_PRODUCT, MIN_PRODUCT, has_triton, linear_product

_BUFFER_BYTES_ON_CPU = 16 << 20  # fits in the caches; the time is flat from 8 to 32 MiB
_BUFFER_BYTES_ELSEWHERE = 256 << 20  # accelerators need fewer and larger products


@dataclass(frozen=True)
class LossTerm:
    """One term of a loss: a sum over a micro-batch, to be divided by a global count."""

    total: Tensor  #: differentiable sum, a scalar
    weight: float = 1.0  #: factor in the objective
    reported: Tensor | None = None  #: sum to report instead of ``total``, e.g. without label smoothing


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    label_smoothing: float = 0.0,
    chunk_rows: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum cross-entropy for ``hidden @ weight.T + bias`` without storing all logits.

    Rows are processed in small chunks, and gradients are computed in the forward pass, so logits are computed once and
    not kept. All chunks share one buffer, except in float32 on x86, where each product allocates its own. Products are
    computed in the dtype of ``hidden``, the softmax in at least float32.

    Args:
        hidden: (N, D) features.
        weight: (V, D) weight of the output layer.
        bias: (V,) bias of the output layer.
        targets: (N,) int64 in [0, V).
        label_smoothing: As in ``torch.nn.functional.cross_entropy`` (Szegedy et al. 2016).
        chunk_rows: Rows per chunk; by default, as many as fit in the buffer.

    Returns:
        The smoothed loss, which is differentiable once, and the negative log-likelihood, without gradient; both are
        sums over rows and scalars of at least float32.
    """
    fused = hidden.device.type == "cuda" and hidden.dtype != torch.float64 and has_triton(hidden.device)
    if chunk_rows is None:
        size = hidden.element_size()
        per_logit = size if size >= 4 or fused else size + 4  # half-precision logits also have a float32 copy
        budget = _BUFFER_BYTES_ON_CPU if hidden.device.type == "cpu" else _BUFFER_BYTES_ELSEWHERE * (1 + fused)
        chunk_rows = max(1, budget // (per_logit * len(weight)))
    gradients = ChunkedGradients(hidden, weight, bias)
    with torch.no_grad():
        # One buffer for the logits of all chunks, and a wide one if they are in half precision.
        narrow = hidden.new_empty((min(chunk_rows, len(hidden)), len(weight)))
        one_type = fused or gradients.wide == gradients.dtype
        wide = narrow if one_type else torch.empty_like(narrow, dtype=gradients.wide)
        log_norms = hidden.new_empty(len(hidden), dtype=gradients.wide)  # (N,), log Σ exp(logits)
        chosen = torch.empty_like(log_norms)  # (N,), logits of the targets
        # Chunks of one size in all steps, but for the last one: oneDNN compiles a product for its number of rows.
        for start, stop in pairwise([*range(0, len(hidden), chunk_rows), len(hidden)]):
            span, n = slice(start, stop), stop - start
            logits = product(hidden[span], weight, bias, narrow[:n])  # (n, D) @ (D, V)
            if fused:
                from attnkit.training.cross_entropy_kernel import cross_entropy_rows

                log_norms[span], chosen[span] = cross_entropy_rows(
                    logits, targets[span].contiguous(), label_smoothing, gradients.any
                )
                if gradients.any:
                    gradients.add(span, logits)
                continue
            column = targets[span, None]  # (n, 1)
            chosen[span] = logits.gather(1, column).squeeze(1)  # (n,)
            highest = logits.amax(1)  # (n,)
            in_place = logits.dtype == gradients.wide
            # Widened into an existing buffer: a copy made by softmax would allocate new memory, page by page.
            probs = logits if in_place else wide[:n].copy_(logits)
            torch.softmax(probs, 1, out=probs)
            # The highest probability is 1 / sum(exp(logit - highest)): one cheap read instead of a second exp pass.
            log_norms[span] = highest.to(gradients.wide) - probs.amax(1).log()
            if gradients.any:
                # softmax - (1 - smoothing) * onehot, the gradient of the logits (n, V).
                probs.scatter_add_(1, column, probs.new_full((n, 1), label_smoothing - 1))
                gradients.add(span, probs if in_place else logits.copy_(probs))
        # -log p = log Σ exp(logits) - logit of the target, (N,) each.
        nll = log_norms.sum() - chosen.sum()
        total = nll
        if label_smoothing:
            uniform = log_norms.sum() - gradients.smooth(label_smoothing)
            total = (1 - label_smoothing) * nll + label_smoothing * uniform
    if gradients.any:
        total = AttachGradients.apply(total, hidden, weight, bias, gradients)  # type: ignore[no-untyped-call]
    return total, nll


class ChunkedGradients:
    """Required gradients of hidden (N, D), weight (V, D) and bias (V,), over chunks."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        # Detached: the graph ends here, and AttachGradients continues it.
        self.inputs = hidden.detach(), weight.detach(), None if bias is None else bias.detach()
        self.dtype = hidden.dtype
        # At least float32; float64 for float64 features.
        self.wide = torch.promote_types(hidden.dtype, torch.float32)
        grad = torch.is_grad_enabled()
        # bf16 sums over many chunks would lose their low bits, so sums over rows use the wide type.
        self.hidden = torch.empty_like(self.inputs[0]) if grad and hidden.requires_grad else None
        self.weight = torch.zeros_like(self.inputs[1], dtype=self.wide) if grad and weight.requires_grad else None
        self.bias = None
        if grad and bias is not None and bias.requires_grad:
            self.bias = torch.zeros_like(bias, dtype=self.wide, requires_grad=False)
        self.any = any(gradient is not None for gradient in (self.hidden, self.weight, self.bias))

    def add(self, rows: slice, errors: Tensor) -> None:
        """Add the contribution of ``rows``, whose logits have gradients ``errors`` (n, V)."""
        hidden, weight, _ = self.inputs
        if self.hidden is not None:
            part = self.hidden[rows]
            # (n, V) @ (V, D), written in place if the product supports it.
            found = product(errors, weight.t(), None, part)
            if found is not part:
                part.copy_(found)
        if self.weight is not None:
            self.weight.add_(product(errors.t(), hidden[rows].t()))  # (V, n) @ (n, D)
        if self.bias is not None:
            self.bias.add_(errors.sum(0, dtype=self.wide))  # (V,)

    def smooth(self, label_smoothing: float, scale: float = 1.0) -> Tensor:
        """Apply label smoothing to the gradients; return the sum of mean logits over rows.

        This subtracts ``scale`` * smoothing / V from the gradient of each logit; ``scale`` is the factor of the
        cross-entropy in the loss. Both are linear in hidden: no pass over (N, V).
        """
        hidden, weight, bias = self.inputs
        hidden_sum, weight_sum = hidden.sum(0, dtype=self.wide), weight.sum(0, dtype=self.wide)  # (D,) each
        # The chunked pass has covered softmax and targets: only -smoothing / V per logit is left.
        share = scale * label_smoothing / len(weight)
        if self.hidden is not None:
            self.hidden.sub_((share * weight_sum).to(self.dtype))  # (D,), for every row
        if self.weight is not None:
            self.weight.sub_(share * hidden_sum)  # (D,), for every word
        if self.bias is not None:
            self.bias.sub_(share * len(hidden))
        mean = hidden_sum @ weight_sum / len(weight)
        return mean if bias is None else mean + len(hidden) * bias.mean(dtype=self.wide)


class AttachGradients(torch.autograd.Function):
    """Autograd function that attaches precomputed gradients to a precomputed total."""

    @staticmethod
    def forward(
        ctx: Any, total: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor | None, gradients: ChunkedGradients
    ) -> Tensor:
        # A plain attribute, since save_for_backward is for inputs and outputs, and these gradients are neither.
        ctx.gradients = gradients
        # A clone, since returning the input itself would alias the two in autograd.
        return total.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Scale by ``upstream``, out of place, so that a retained graph can run again."""
        sums: ChunkedGradients = ctx.gradients
        parts = (sums.hidden, sums.weight, sums.bias)
        return None, *(None if part is None else (part * upstream).to(sums.dtype) for part in parts), None


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Return x (n, k) @ weight.T (k, m) + bias (m,), in ``out`` or in a new tensor."""
    is_large = x.numel() * weight.shape[0] >= MIN_PRODUCT
    if HAS_PRODUCT and x.dtype == torch.float32 and x.device.type == "cpu" and is_large:
        # In float32, torch.mm uses MKL, which is half as fast as oneDNN on non-Intel processors.
        return linear_product(x, weight, bias)
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)
