"""Protocol between the training loop and the parameters: replicated on each rank, or sharded over ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn

Tensors = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Of the model, which inference needs; and what only training needs, ``exp_avg.*``, ``exp_avg_sq.*`` and, where there
is a moving average, ``weights.*``, the weights being trained. By the names of the model's parameters and buffers."""


class ParameterStore(Protocol):
    """Parameters, gradient, moments and moving average of a model that is being trained.

    With several ranks every method is called on all of them.
    """

    @property
    def model(self) -> nn.Module:
        """The trained model."""
        ...

    @property
    def device(self) -> torch.device:
        """Device of parameters and gradient."""
        ...

    @property
    def n_updates(self) -> int:
        """Optimizer updates taken; the bias correction depends on it."""
        ...

    def accumulate_grads(self) -> None:
        """Take in the gradient of one micro-batch, after its backward pass."""
        ...

    def all_reduce_grads(self, reduce: Callable[[Tensor], None] | None) -> None:
        """Sum the gradient over ranks, once all micro-batches are in."""
        ...

    def grad_norm(self) -> Tensor:
        """Return the Euclidean norm of the whole gradient, a scalar, without waiting for the device."""
        ...

    def update(self, learning_rate: float, norm: float) -> None:
        """Clip the gradient, whose norm is given, take a step of the optimizer, and move the average."""
        ...

    def zero_grad(self) -> None:
        """Zero the gradient for the next step."""
        ...

    def inference(self) -> AbstractContextManager[nn.Module]:
        """Let the model compute with the weights that are saved: full precision, the moving average if there is one.

        On rank 0; what the others get need not be able to compute.
        """
        ...

    def use_weights(self, tensors: Mapping[str, Tensor]) -> AbstractContextManager[nn.Module]:
        """Let the model compute with other weights, as ``inference`` does."""
        ...

    def tensors(self) -> Tensors:
        """Return all that is saved, on rank 0; it holds until the next step."""
        ...

    def shapes(self) -> Tensors:
        """Return tensors of the names, shapes and types of ``tensors``, on every rank."""
        ...

    def restore(self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], n_updates: int) -> None:
        """Copy in what ``tensors`` returned when the checkpoint was saved; shapes fit already."""
        ...


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the persistent buffers: what a state dict has beside parameters."""
    return {n: t for n, t in model.state_dict(keep_vars=True).items() if not isinstance(t, nn.Parameter)}
