"""Average weights over the latest steps (EMA) and over checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor


class MovingAverage:
    """Exponential moving average of a flat weight buffer (Polyak and Juditsky 1992, in its exponential form)."""

    def __init__(self, weights: Tensor, decay: float) -> None:
        self.weights = weights.clone()
        self._decay = decay

    @torch.no_grad()
    def update(self, weights: Tensor, n_updates: int) -> None:
        """Move towards ``weights`` after optimizer step number ``n_updates`` (from 1)."""
        # w <- d w + (1 - d) new, in one kernel.
        self.weights.lerp_(weights, 1 - decay_at(self._decay, n_updates))


def decay_at(decay: float, n_updates: int) -> float:
    """Return what the average keeps of itself after optimizer step number ``n_updates`` (from 1).

    Early on it is only (1 + n) / (10 + n), so that the initial weights are forgotten in time.
    """
    return min(decay, (1 + n_updates) / (10 + n_updates))


def average(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each tensor over checkpoints, summed in float64 and given back in its own dtype.

    Checkpoints are consumed one at a time, so a generator that loads them keeps memory at one checkpoint and the sum.
    Tensors that are not floating point must be the same in all of them.

    Raises:
        ValueError: No checkpoint is given, or names, shapes, dtypes or whole-number tensors differ.
    """
    sums: dict[str, Tensor] = {}
    first: Mapping[str, Tensor] = {}
    n = 0
    for n, tensors in enumerate(checkpoints, start=1):
        if n == 1:
            # Only names, shapes and dtypes of the first one are needed later: its values are in the sums.
            first = {name: torch.empty_like(t) if t.is_floating_point() else t for name, t in tensors.items()}
            # float64: the mean of equal checkpoints is that checkpoint, to the last bit.
            sums = {name: t.to(torch.float64, copy=True) for name, t in tensors.items() if t.is_floating_point()}
            continue
        _check_alike(first, tensors, n)
        for name, total in sums.items():
            total += tensors[name]
    if n == 0:
        raise ValueError("no checkpoints to average")
    return {name: (sums[name] / n).to(t.dtype) if name in sums else t.clone() for name, t in first.items()}


def _check_alike(first: Mapping[str, Tensor], other: Mapping[str, Tensor], n: int) -> None:
    if odd := first.keys() ^ other.keys():
        raise ValueError(f"checkpoint {n} does not have the tensors of the first: '{min(odd)}' is in only one of them")
    for name, tensor in first.items():
        if tensor.shape != other[name].shape or tensor.dtype != other[name].dtype:
            raise ValueError(f"'{name}' has another shape or dtype in checkpoint {n} than in the first")
        if not tensor.is_floating_point() and not torch.equal(tensor, other[name]):
            raise ValueError(f"'{name}' differs in checkpoint {n} and has no mean: it is not floating point")
