"""What replicated and sharded parameters have in common: names of what is saved, and moving averages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn


def decay_at(decay: float, n_updates: int) -> float:
    """Return the decay of a moving average of weights at update ``n_updates``, counted from 1.

    Polyak and Juditsky 1992, in its exponential form. Early on it is (1 + n) / (10 + n): initial weights fade in time.
    """
    return min(decay, (1 + n_updates) / (10 + n_updates))


def average(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each tensor over checkpoints, summed in float64 and given back in its own dtype.

    Checkpoints are consumed one at a time, so a generator that loads them keeps memory at one checkpoint and the sum.
    Tensors that are not floating point must be the same in all of them.

    Raises:
        ValueError: No checkpoint is given, or names, shapes, dtypes or whole-number tensors differ.
    """
    first: Mapping[str, Tensor] = {}
    sums: dict[str, Tensor] = {}
    n = 0
    for n, tensors in enumerate(checkpoints, start=1):
        if n == 1:
            # The first one serves to compare names, shapes and dtypes: its values are in the sums.
            first = {name: torch.empty_like(t) if t.is_floating_point() else t for name, t in tensors.items()}
            # float64: the mean of equal checkpoints is that checkpoint, to the last bit.
            sums = {name: t.to(torch.float64, copy=True) for name, t in tensors.items() if t.is_floating_point()}
            continue
        if odd := first.keys() ^ tensors.keys():
            what = f"'{min(odd)}' is in only one of them"
            raise ValueError(f"checkpoint {n} does not have the tensors of the first: {what}")
        # All is compared before anything is added: shapes that broadcast would add up without an error.
        for name, tensor in first.items():
            if tensor.shape != tensors[name].shape or tensor.dtype != tensors[name].dtype:
                raise ValueError(f"'{name}' has another shape or dtype in checkpoint {n} than in the first")
            if not tensor.is_floating_point() and not torch.equal(tensor, tensors[name]):
                raise ValueError(f"'{name}' differs in checkpoint {n} and has no mean: it is not floating point")
        for name, total in sums.items():
            total += tensors[name]
    if n == 0:
        raise ValueError("no checkpoints to average")
    return {name: (sums[name] / n).to(t.dtype) if name in sums else t.clone() for name, t in first.items()}


Tensors = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Of the model, which inference needs; and what only training needs, ``exp_avg.*``, ``exp_avg_sq.*`` and, where there
is a moving average, ``weights.*``, the weights being trained. By the names of the model's parameters and buffers."""


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the persistent buffers: what a state dict has beside parameters."""
    # keep_vars: otherwise parameters are plain tensors and cannot be told apart.
    return {n: t for n, t in model.state_dict(keep_vars=True).items() if not isinstance(t, nn.Parameter)}
