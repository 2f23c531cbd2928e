"""All weights on every rank: flat buffers, AdamW over them, their moving average."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from attnkit.training.averaging import MovingAverage
from attnkit.training.config import OptimizationConfig
from attnkit.training.flat_parameters import FlatParameters, Precision
from attnkit.training.optimizer import AdamW
from attnkit.training.parameter_store import Tensors, buffers_of


class FlatParameterStore:
    """Weights and moments as ``Weights`` has it. Building it moves the model's parameters into flat buffers."""

    def __init__(
        self,
        model: nn.Module,
        config: OptimizationConfig,
        precision: Precision = "float32",
        rates: Mapping[str, float] | None = None,
    ) -> None:
        self.flat = FlatParameters(model, precision, rates)
        self.optimizer = AdamW(self.flat, config)
        self.average = None if config.ema_decay is None else MovingAverage(self.flat.master, config.ema_decay)

    @property
    def model(self) -> nn.Module:
        """What is trained."""
        return self.flat.model

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.flat.gradient.device

    @property
    def n_updates(self) -> int:
        """Updates taken."""
        return self.optimizer.n_updates

    def accumulate_grads(self) -> None:
        """Take in the gradient of one micro-batch."""
        self.flat.accumulate_grads()

    def all_reduce_grads(self, reduce: Callable[[Tensor], None] | None) -> None:
        """Sum the gradient over ranks, by one call."""
        self.flat.all_reduce_grads(reduce)

    def grad_norm(self) -> Tensor:
        """Return the norm of the gradient."""
        return self.flat.grad_norm()

    def update(self, learning_rate: float, norm: float) -> None:
        """Clip, step, and move the average."""
        self.optimizer.clip(norm)
        self.optimizer.step(learning_rate)
        if self.average is not None:
            self.average.update(self.flat.master, self.optimizer.n_updates)

    def zero_grad(self) -> None:
        """Zero the gradient."""
        self.flat.zero_grad()

    def inference(self) -> AbstractContextManager[nn.Module]:
        """Let the model compute with the weights that are saved."""
        return self.flat.use_weights(self._saved())

    @contextmanager
    def use_weights(self, tensors: Mapping[str, Tensor]) -> Iterator[nn.Module]:
        """Let the model compute with other weights."""
        flat = torch.zeros_like(self.flat.master)
        for name, view in self.flat.views(flat).items():
            view.copy_(tensors[name])
        with self.flat.use_weights(flat) as model:
            yield model

    def tensors(self) -> Tensors:
        """Return all that is saved, as views that hold until the next step."""
        model = self.flat.views(self._saved()) | buffers_of(self.flat.model)
        optimizer: dict[str, Tensor] = {}
        buffers = {"exp_avg": self.optimizer.exp_avg, "exp_avg_sq": self.optimizer.exp_avg_sq}
        for kind, flat in (buffers if self.average is None else buffers | {"weights": self.flat.master}).items():
            optimizer |= {f"{kind}.{name}": view for name, view in self.flat.views(flat).items()}
        return model, optimizer

    def shapes(self) -> Tensors:
        """Return tensors of the names, shapes and types of ``tensors``."""
        return self.tensors()

    def restore(self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], n_updates: int) -> None:
        """Take what ``tensors`` returned."""
        own_model, own_optimizer = self.tensors()
        with torch.no_grad():
            for name, tensor in own_model.items():
                tensor.copy_(model[name])
            for name, tensor in own_optimizer.items():
                tensor.copy_(optimizer[name])
        self.flat.sync_working_copy()
        self.flat.zero_grad()
        self.optimizer.set_updates(n_updates)

    def _saved(self) -> Tensor:
        return self.flat.master if self.average is None else self.average.weights
