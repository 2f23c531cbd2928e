"""Muon: momentum, orthogonalized matrix by matrix (Jordan et al. 2024).

With gradient G, momentum μ, learning rate η and weight decay λ, an update of W (rows, columns) is::

    M ← μ M + (1 - μ) G                       running mean of the gradient
    N = μ M + (1 - μ) G                       Nesterov's correction
    W ← (1 - η λ) W - 0.2 √max(rows, columns) η orthogonalize(N)

All entries of U Vᵀ have a root mean square of 1/√max(rows, columns), and AdamW's updates one of 0.2 to 0.4, so the
factor makes both alike (Liu et al. 2025, "Muon is scalable for LLM training", equation 4). torch.optim.Muon computes
the same, but matrix by matrix and always in bfloat16.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  #: of the polynomial a s + b s³ + c s⁵ that maps singular values s to about 1
N_ITERATIONS = 5
_EPS = 1e-7  # of a zero gradient, the norm by which it is divided
_UPDATE_SIZE = 0.2  # root mean square of AdamW's updates
_STACK = 1 << 22  # elements that are orthogonalized at once


def orthogonalize(matrices: Tensor) -> Tensor:
    """Return about U Vᵀ of each matrix U S Vᵀ of a stack (N, rows, columns).

    Five iterations of a polynomial (Jordan et al. 2024), which need no decomposition and bear the rounding of bfloat16.
    Its slope at zero lifts small singular values fast; those above 0.01 of the matrix's norm end within 0.68 and 1.14.
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices  # the products below are of the shorter side
    # The Frobenius norm is at least the largest singular value, and the polynomial converges from (0, 1].
    x = x / torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp(min=_EPS)
    for _ in range(N_ITERATIONS):
        gram = x @ x.mT  # (N, short, short)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def orthogonalize_operations(rows: int, columns: int) -> int:
    """Return the floating-point operations of orthogonalizing a matrix."""
    short, long = sorted((rows, columns))
    # X Xᵀ and its product with X, and the square of X Xᵀ.
    return N_ITERATIONS * (2 * 2 * short**2 * long + 2 * short**3)


class Muon:
    """Muon for a section of flat buffers.

    Args:
        maps: Views of weight and gradient, (rows, columns) each, of all matrices in the section. A weight that holds
            several maps, such as query, key and value, is several matrices.
        dtype: Data type in which matrices are orthogonalized.
        momentum: Decay rate of the running mean of the gradient.
    """

    def __init__(self, maps: Sequence[tuple[Tensor, Tensor]], dtype: torch.dtype, momentum: float) -> None:
        self._dtype, self._momentum = dtype, momentum
        # Equal shapes are stacked: matrices of small models are computed three times as fast together.
        self._stacks: list[list[tuple[Tensor, Tensor]]] = []
        for shape in dict.fromkeys(weight.shape for weight, _ in maps):
            alike = [pair for pair in maps if pair[0].shape == shape]
            size = max(1, _STACK // shape.numel())
            self._stacks += [alike[i : i + size] for i in range(0, len(alike), size)]

    def update(
        self, weights: Tensor, gradient: Tensor, exp_avg: Tensor, learning_rate: float, weight_decay: float
    ) -> None:
        """Take a step in sections of the flat buffers, (n,) each; overwrites the gradient."""
        exp_avg.lerp_(gradient, 1 - self._momentum)
        gradient.lerp_(exp_avg, self._momentum)
        weights.mul_(1 - learning_rate * weight_decay)
        for stack in self._stacks:
            update = orthogonalize(torch.stack([own for _, own in stack]).to(self._dtype)).to(weights.dtype)
            size = _UPDATE_SIZE * max(update.shape[-2:]) ** 0.5
            for (weight, _), own in zip(stack, update, strict=True):
                weight.add_(own, alpha=-learning_rate * size)
