"""State of a training run: weights, moments and counters, as tensors and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnkit.errors import RunError

if TYPE_CHECKING:  # FSDP is slow to import
    from attnkit.training.flat_optimizer import FlatParameterStore
    from attnkit.training.fsdp import FsdpParameterStore

    ParameterStore = FlatParameterStore | FsdpParameterStore


@dataclasses.dataclass(eq=False)
class TrainState:
    """State of a run between two steps.

    With the same job, two states with equal tensors and counters lead to bit-identical weights.
    """

    weights: ParameterStore
    position: Any  #: position of the feed: a frozen dataclass of plain values
    # Counters: all fields from here on are stored in state.json.
    step: int = 0  #: steps taken, skipped ones included
    epoch: float = 0.0  #: epochs completed
    tokens: int = 0  #: tokens seen, without padding
    minutes: float = 0.0  #: wall time in minutes over all restarts
    skipped: int = 0  #: steps without an update because of a non-finite loss or gradient
    skipped_in_row: int = 0
    best: float | None = None  #: best value of the metric so far; ``best_step`` is its step
    best_step: int | None = None
    best_loss: float | None = None
    """Loss of the best evaluation, if evaluations report one; it breaks ties."""
    evals_without_improvement: int = 0  #: evaluations since the best one
    plateau_wait: int = 0
    """Evaluations without improvement since the schedule ``plateau`` last lowered the learning rate."""
    lr_scale: float = 1.0  #: factor of the learning rate, which ``plateau`` lowers
    eval_pending: bool = False  #: whether an evaluation is due before the next step
    finished: str | None = None
    """Why training ended: steps, epochs, tokens, minutes, patience or stopped. None while it runs."""

    def counters(self) -> dict[str, Any]:
        """Return everything but the tensors, as values for JSON."""
        counters = {name: getattr(self, name) for name in _COUNTERS}
        # Skipped steps are not updates, so the bias correction of the optimizer has a separate count.
        return counters | {"updates": self.weights.n_updates, "position": dataclasses.asdict(self.position)}

    def restore(
        self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], counters: Mapping[str, Any]
    ) -> None:
        """Restore a checkpoint from its tensors and the values of ``counters``.

        Raises:
            RunError: The checkpoint has another model or other settings, lacks a counter or has a non-finite value.
        """
        missing = [name for name in (*_COUNTERS, "updates", "position") if name not in counters]
        if missing:
            raise RunError(f"the checkpoint's state lacks '{missing[0]}'")
        # Everything is checked before anything is copied: a state is restored completely or not at all.
        own_model, own_optimizer = self.weights.shapes()
        _check(own_model, model, "model")
        _check(own_optimizer, optimizer, "optimizer")
        self.weights.restore(model, optimizer, counters["updates"])
        for name in _COUNTERS:
            setattr(self, name, counters[name])
        # The type of the position comes from the fresh state; counters contain plain values.
        self.position = type(self.position)(**counters["position"])


_COUNTERS = tuple(field.name for field in dataclasses.fields(TrainState))[2:]


def _check(own: Mapping[str, Tensor], saved: Mapping[str, Tensor], what: str) -> None:
    if odd := own.keys() ^ saved.keys():
        side = "lacks" if min(odd) in own else "has the unknown tensor"
        raise RunError(f"the checkpoint's {what} does not fit this run: it {side} '{min(odd)}'")
    for name, tensor in own.items():
        if tensor.shape != saved[name].shape:
            raise RunError(
                f"the checkpoint's {what} does not fit this run: '{name}' is {tuple(saved[name].shape)}, "
                f"not {tuple(tensor.shape)}"
            )
        if not bool(torch.isfinite(saved[name]).all()):
            raise RunError(f"the checkpoint's {what} contains non-finite values in '{name}'")
