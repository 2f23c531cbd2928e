"""R-Drop: two passes with different dropout that must agree (Liang et al. 2021).

Letters: N rows with a target, D model width, V vocabulary, n rows of a chunk.
"""

from itertools import pairwise

import torch
from torch import Tensor

from attnkit.training.losses import AttachGradients, ChunkedGradients, product

_BUFFER_BYTES_ON_CPU = 4 << 20  # of one of some six arrays: together they fit in the caches
_BUFFER_BYTES_ELSEWHERE = 128 << 20


def linear_consistency(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    alpha: float,
    label_smoothing: float = 0.0,
    chunk_rows: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Sum half of the loss of R-Drop for ``hidden @ weight.T + bias``, in chunks.

    The loss is equation 4 of Liang et al. 2021: the cross-entropy of both passes plus ``alpha`` times the mean of both
    Kullback-Leibler divergences between their distributions. Halved, it equals the cross-entropy of a single pass when
    both passes agree. Logits are not kept: gradients are computed in the forward pass.

    Args:
        hidden: (2N, D) features of the first pass, then those of the second.
        weight: (V, D) weight of the output layer.
        bias: (V,) bias of the output layer.
        targets: (N,) int64 in [0, V), of both passes.
        alpha: Weight of the divergence.
        label_smoothing: As in ``torch.nn.functional.cross_entropy`` (Szegedy et al. 2016).
        chunk_rows: Rows per chunk and pass; by default, as many as fit in the caches.

    Returns:
        The loss, which is differentiable once, and the mean negative log-likelihood of both passes, without gradient;
        both are sums over the N rows and scalars of at least float32.
    """
    n_rows = len(targets)
    if len(hidden) != 2 * n_rows:
        raise ValueError(f"{len(hidden)} rows of features for {n_rows} targets of two passes")
    if chunk_rows is None:
        budget = _BUFFER_BYTES_ON_CPU if hidden.device.type == "cpu" else _BUFFER_BYTES_ELSEWHERE
        chunk_rows = max(1, budget // (4 * len(weight)))
    gradients = ChunkedGradients(hidden, weight, bias)
    with torch.no_grad():
        nll = hidden.new_zeros((), dtype=gradients.wide)
        divergence, normalizers = torch.zeros_like(nll), torch.zeros_like(nll)
        for start, stop in pairwise([*range(0, n_rows, chunk_rows), n_rows]):
            spans = slice(start, stop), slice(n_rows + start, n_rows + stop)
            column = targets[spans[0], None]  # (n, 1)
            logits = [product(hidden[span], weight, bias).to(gradients.wide) for span in spans]  # (n, V) each
            chosen = torch.stack([one.gather(1, column) for one in logits])  # (2, n, 1)
            log_norms = torch.stack([one.logsumexp(1, keepdim=True) for one in logits])  # (2, n, 1)
            nll += (log_norms - chosen).sum()
            normalizers += log_norms.sum()
            # Log-probabilities in place of the logits; their difference is that of the passes.
            log_probs = [one.sub_(norm) for one, norm in zip(logits, log_norms, strict=True)]
            probs = [one.exp() for one in log_probs]
            difference = log_probs[0].sub_(log_probs[1])  # (n, V)
            # KL(p1 || p2) and KL(p2 || p1), (n, 1) each.
            forward = (probs[0] * difference).sum(1, keepdim=True)
            backward = (probs[1] * difference).sum(1, keepdim=True).neg_()
            divergence += (forward + backward).sum()
            if not gradients.any:
                continue
            # The gradient of both divergences together: p1 (log p1 - log p2 - KL(p1 || p2)) + p1 - p2 for the first
            # pass, and the same with exchanged passes for the second.
            gap = probs[0] - probs[1]
            first = (difference - forward).mul_(probs[0]).add_(gap).mul_(alpha / 4)
            second = difference.neg_().sub_(backward).mul_(probs[1]).sub_(gap).mul_(alpha / 4)
            for span, errors, own in zip(spans, (first, second), probs, strict=True):
                # Half of the cross-entropy's gradient, softmax - (1 - smoothing) * onehot.
                errors.add_(own, alpha=0.5).scatter_add_(
                    1, column, own.new_full(column.shape, (label_smoothing - 1) / 2)
                )
                gradients.add(span, errors.to(gradients.dtype))
        cross_entropy = nll
        if label_smoothing:
            uniform = normalizers - gradients.smooth(label_smoothing, scale=0.5)
            cross_entropy = (1 - label_smoothing) * nll + label_smoothing * uniform
        total = cross_entropy / 2 + alpha / 4 * divergence
    if gradients.any:
        total = AttachGradients.apply(total, hidden, weight, bias, gradients)  # type: ignore[no-untyped-call]
    return total, nll / 2
