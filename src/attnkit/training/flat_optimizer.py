"""AdamW over flat buffers, and the store of parameters, moments and moving average that training uses.

The learning rate comes with each step: schedules are in ``schedules``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from attnkit.training.averaging import MovingAverage
from attnkit.training.config import OptimizationConfig
from attnkit.training.flat_parameters import FlatParameters, Precision
from attnkit.training.parameter_store import Tensors, buffers_of


class AdamW:
    """Decoupled weight decay with Adam (Loshchilov and Hutter 2019), as torch's fused kernel over a few flat slices."""

    def __init__(self, flat: FlatParameters, config: OptimizationConfig) -> None:
        self._flat = flat
        self._config = config
        # Of the gradient's length: frozen parameters lie behind it and have no moments.
        self.exp_avg = torch.zeros_like(flat.gradient)
        self.exp_avg_sq = torch.zeros_like(flat.gradient)
        # On the device, so that a step never waits for the host.
        self._steps = [torch.zeros((), device=flat.gradient.device) for _ in flat.parts]
        self.n_updates = 0

    def set_updates(self, n_updates: int) -> None:
        """Restore the number of steps taken, on which the bias correction depends."""
        self.n_updates = n_updates
        for step in self._steps:
            step.fill_(n_updates)

    def clip(self, norm: float) -> None:
        """Scale the gradient, whose norm is ``norm``, down to ``clip_norm`` if it is larger (Pascanu et al. 2013)."""
        # The norm comes from outside: rank 0's serves all, so that rounding cannot part the ranks.
        limit = self._config.clip_norm
        if limit is not None and norm > limit:
            # In place: the gradient is one buffer, so clipping is one kernel.
            self._flat.gradient.mul_(limit / norm)

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        """Update the master weights from the flat gradient and hand them to the module."""
        # One call per group, not per parameter: groups differ in weight decay or learning rate only.
        beta1, beta2 = self._config.betas
        for part, step in zip(self._flat.parts, self._steps, strict=True):
            span = part.span
            adamw(
                [self._flat.master[span]],
                [self._flat.gradient[span]],
                [self.exp_avg[span]],
                [self.exp_avg_sq[span]],
                [],
                # one tensor per group: the fused kernel reads the step for its bias correction
                [step],
                fused=True,
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=learning_rate * part.rate,
                weight_decay=self._config.weight_decay if part.decayed else 0.0,
                eps=self._config.eps,
                maximize=False,
            )
        self.n_updates += 1
        self._flat.sync_working_copy()


class FlatParameterStore(FlatParameters):
    """``ParameterStore`` with all weights on every rank; building it moves the parameters into flat buffers."""

    def __init__(
        self,
        model: nn.Module,
        config: OptimizationConfig,
        precision: Precision = "float32",
        rates: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(model, precision, rates)
        self.optimizer = AdamW(self, config)
        self.average = None if config.ema_decay is None else MovingAverage(self.master, config.ema_decay)

    @property
    def device(self) -> torch.device:
        """Device of parameters and gradient."""
        return self.gradient.device

    @property
    def n_updates(self) -> int:
        """Optimizer updates taken."""
        return self.optimizer.n_updates

    def update(self, learning_rate: float, norm: float) -> None:
        """Clip, step, and move the average."""
        self.optimizer.clip(norm)
        # The average follows the master weights, which are never rounded to bfloat16.
        self.optimizer.step(learning_rate)
        if self.average is not None:
            self.average.update(self.master, self.optimizer.n_updates)

    def inference(self) -> AbstractContextManager[nn.Module]:
        """Let the model compute with the weights that are saved."""
        return self.use_buffer(self._saved())

    @contextmanager
    def use_weights(self, tensors: Mapping[str, Tensor]) -> Iterator[nn.Module]:
        """Let the model compute with other weights."""
        # The whole model once more: only evaluation with other weights pays for it.
        flat = torch.zeros_like(self.master)
        for name, view in self.views(flat).items():
            view.copy_(tensors[name])
        with self.use_buffer(flat) as model:
            yield model

    def tensors(self) -> Tensors:
        """Return all that is saved, as views that hold until the next step."""
        model = self.views(self._saved()) | buffers_of(self.model)
        optimizer: dict[str, Tensor] = {}
        # With a moving average the model file holds the average, so the weights in training are saved apart.
        buffers = {"exp_avg": self.optimizer.exp_avg, "exp_avg_sq": self.optimizer.exp_avg_sq}
        for kind, flat in (buffers if self.average is None else buffers | {"weights": self.master}).items():
            optimizer |= {f"{kind}.{name}": view for name, view in self.views(flat).items()}
        return model, optimizer

    def shapes(self) -> Tensors:
        """Return tensors of the names, shapes and types of ``tensors``."""
        return self.tensors()

    def restore(self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], n_updates: int) -> None:
        """Copy in what ``tensors`` returned when the checkpoint was saved."""
        own_model, own_optimizer = self.tensors()
        with torch.no_grad():
            for name, tensor in own_model.items():
                tensor.copy_(model[name])
            for name, tensor in own_optimizer.items():
                tensor.copy_(optimizer[name])
        # The copies above went to the master weights; the module computes with the working copy.
        self.sync_working_copy()
        self.zero_grad()
        self.optimizer.set_updates(n_updates)

    def _saved(self) -> Tensor:
        return self.master if self.average is None else self.average.weights
