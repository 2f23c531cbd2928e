"""Everything that training changes: weights, moments and counters, as tensors and JSON. Knows no files and no data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from attnkit.errors import RunError
from attnkit.training.averaging import MovingAverage
from attnkit.training.config import OptimizationConfig
from attnkit.training.flat import FlatParameters, Precision
from attnkit.training.optimizer import AdamW

_COUNTERS = (
    *("step", "epoch", "tokens", "minutes", "skipped", "skipped_in_row"),
    *("best", "best_step", "best_loss", "stale", "plateau_wait", "rate_scale", "due", "finished"),
)


class TrainState:
    """The state of a run between two steps. Building it moves the model's parameters into flat buffers.

    Two states with equal tensors and counters go on to bit-identical weights, given the same job.
    """

    def __init__(
        self,
        model: nn.Module,
        config: OptimizationConfig,
        position: Any,
        precision: Precision = "float32",
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.flat = FlatParameters(model, precision, rates)
        self.optimizer = AdamW(self.flat, config)
        self.average = None if config.ema_decay is None else MovingAverage(self.flat.master, config.ema_decay)
        self.position = position
        """Where the feed goes on: a frozen dataclass of plain values, otherwise opaque."""
        self.step = 0
        """Steps taken, skipped ones included."""
        self.epoch = 0.0
        """Epochs done."""
        self.tokens = 0
        """Real tokens seen."""
        self.minutes = 0.0
        """Wall time spent, over all restarts."""
        self.skipped = 0
        """Steps whose update was not applied because a number was not finite."""
        self.skipped_in_row = 0
        self.best: float | None = None
        """Best value of the metric so far, and the step it belongs to."""
        self.best_step: int | None = None
        self.best_loss: float | None = None
        """Loss of that evaluation, where evaluations report one: it decides between equal values."""
        self.stale = 0
        """Evaluations since the best one."""
        self.plateau_wait = 0
        """Evaluations without improvement since the schedule ``plateau`` last lowered the learning rate."""
        self.rate_scale = 1.0
        """What ``plateau`` has multiplied the learning rate by."""
        self.due = False
        """Whether an evaluation comes before the next step."""
        self.finished: str | None = None
        """Why training ended: steps, epochs, tokens, minutes, patience or stopped. None while it goes on."""

    def inference(self) -> AbstractContextManager[nn.Module]:
        """Let the model compute with the weights that are saved: full precision, the moving average if there is one."""
        return self.flat.showing(self._inference_weights())

    def note_metric(
        self, value: float, higher_is_better: bool, config: OptimizationConfig, loss: float | None = None
    ) -> bool:
        """Take in one evaluation: best value, patience, plateau. Return whether it is the best so far.

        Of equal values, as BLEU 0.0 early on, the one with the lower ``loss`` is the better.
        """
        better = math.isfinite(value) and (
            self.best is None or (value > self.best if higher_is_better else value < self.best)
        )
        if value == self.best and loss is not None and self.best_loss is not None:
            better = loss < self.best_loss
        if better:
            self.best_loss = loss
            self.best, self.best_step, self.stale, self.plateau_wait = value, self.step, 0, 0
            return True
        self.stale += 1
        self.plateau_wait += 1
        if config.schedule == "plateau" and self.plateau_wait >= config.plateau_patience:
            self.rate_scale = max(config.min_rate, self.rate_scale * config.plateau_factor)
            self.plateau_wait = 0
        return False

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return (model, optimizer) as name -> tensor, views that hold until the next step.

        ``model`` has the weights for inference, each tied parameter once, and the model's persistent buffers.
        ``optimizer`` has what only training needs: ``exp_avg.*``, ``exp_avg_sq.*`` and, with a moving average,
        ``weights.*``, the weights being trained.
        """
        model = self.flat.views(self._inference_weights()) | _buffers(self.flat.model)
        optimizer: dict[str, Tensor] = {}
        for kind, flat in self._optimizer_buffers().items():
            optimizer |= {f"{kind}.{name}": view for name, view in self.flat.views(flat).items()}
        return model, optimizer

    def counters(self) -> dict[str, Any]:
        """Return all that is not a tensor, ready for JSON."""
        found = {name: getattr(self, name) for name in _COUNTERS}
        return found | {"updates": self.optimizer.n_updates, "position": dataclasses.asdict(self.position)}

    def restore(
        self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], counters: Mapping[str, Any]
    ) -> None:
        """Set everything to what ``tensors()`` and ``counters()`` returned when the checkpoint was made.

        Raises:
            RunError: The checkpoint belongs to another model or to other settings, lacks a counter, or has a NaN in it.
        """
        missing = [name for name in (*_COUNTERS, "updates", "position") if name not in counters]
        if missing:
            raise RunError(f"the checkpoint's state lacks '{missing[0]}'")
        own_model, own_optimizer = self.tensors()
        _check(own_model, model, "model")
        _check(own_optimizer, optimizer, "optimizer")
        with torch.no_grad():
            for name, tensor in own_model.items():
                tensor.copy_(model[name])
            for name, tensor in own_optimizer.items():
                tensor.copy_(optimizer[name])
        self.flat.publish()
        self.flat.clear()
        for name in _COUNTERS:
            setattr(self, name, counters[name])
        self.optimizer.set_updates(counters["updates"])
        self.position = type(self.position)(**counters["position"])

    def _inference_weights(self) -> Tensor:
        return self.flat.master if self.average is None else self.average.weights

    def _optimizer_buffers(self) -> dict[str, Tensor]:
        buffers = {"exp_avg": self.optimizer.exp_avg, "exp_avg_sq": self.optimizer.exp_avg_sq}
        return buffers if self.average is None else buffers | {"weights": self.flat.master}


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    """Return the persistent buffers: what a state dict has beside parameters."""
    return {n: t for n, t in model.state_dict(keep_vars=True).items() if not isinstance(t, nn.Parameter)}


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
            raise RunError(f"the checkpoint's {what} holds numbers that are not finite, in '{name}'")
