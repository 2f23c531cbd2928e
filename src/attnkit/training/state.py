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

    Two states with equal tensors and counters lead to bit-identical weights, given the same job.
    """

    weights: ParameterStore
    position: Any  #: position of the feed: a frozen dataclass of plain values
    # Counters: all fields from here on are stored in state.json.
    step: int = 0  #: steps taken, skipped ones included
    epoch: float = 0.0  #: epochs done
    tokens: int = 0  #: real tokens seen
    minutes: float = 0.0  #: wall time spent, over all restarts
    skipped: int = 0  #: steps whose update was not applied because a number was not finite
    skipped_in_row: int = 0
    best: float | None = None  #: best value of the metric so far, and the step it belongs to
    best_step: int | None = None
    best_loss: float | None = None
    """Loss of that evaluation, where evaluations report one: it decides between equal values."""
    evals_without_improvement: int = 0  #: evaluations since the best one
    plateau_wait: int = 0
    """Evaluations without improvement since the schedule ``plateau`` last lowered the learning rate."""
    lr_scale: float = 1.0  #: factor of the learning rate, which ``plateau`` lowers
    eval_pending: bool = False  #: whether an evaluation is due before the next step
    finished: str | None = None
    """Why training ended: steps, epochs, tokens, minutes, patience or stopped. None while it runs."""

    def counters(self) -> dict[str, Any]:
        """Return all that is not a tensor, ready for JSON."""
        counters = {name: getattr(self, name) for name in _COUNTERS}
        # Skipped steps are no updates: the optimizer's bias correction counts for itself.
        return counters | {"updates": self.weights.n_updates, "position": dataclasses.asdict(self.position)}

    def restore(
        self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], counters: Mapping[str, Any]
    ) -> None:
        """Set everything to what ``weights.tensors()`` and ``counters()`` returned when the checkpoint was made.

        Raises:
            RunError: The checkpoint belongs to another model or to other settings, lacks a counter, or has a NaN in it.
        """
        missing = [name for name in (*_COUNTERS, "updates", "position") if name not in counters]
        if missing:
            raise RunError(f"the checkpoint's state lacks '{missing[0]}'")
        # All is checked before anything is copied: a state is restored whole or not at all.
        own_model, own_optimizer = self.weights.shapes()
        _check(own_model, model, "model")
        _check(own_optimizer, optimizer, "optimizer")
        self.weights.restore(model, optimizer, counters["updates"])
        for name in _COUNTERS:
            setattr(self, name, counters[name])
        # The fresh state brings the type of its position; counters hold plain values.
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
