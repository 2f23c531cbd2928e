"""AdamW over flat buffers: parameters, gradients, moments and moving average as views."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from attnkit.training.config import OptimizationConfig
from attnkit.training.parameter_store import MovingAverage, Tensors, buffers_of

_ALIGNMENT = 64  # elements: every parameter starts on a cache line, also in bfloat16
_NORM_BLOCK = 4096

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class _Slot:
    """Where one parameter lies."""

    name: str
    parameter: nn.Parameter
    start: int

    def view(self, flat: Tensor) -> Tensor:
        return flat[self.start : self.start + self.parameter.numel()].view(self.parameter.shape)


@dataclass(frozen=True)
class ParamGroup:
    """Neighbours that the optimizer treats alike."""

    span: slice
    decayed: bool
    """Whether they are matrices."""
    rate: float
    """What the learning rate is multiplied by."""


class FlatParameters:
    """Move the parameters of ``model`` into flat buffers, in place.

    The model must be on its device already; from then on its parameters must not be moved or cast by others. A
    parameter used in two places (tied weights) is there once. Gradients are accumulated in place by autograd into
    views of a flat buffer, so they must be zeroed (``clear``), never set to None. ``rates`` has the names of those
    parameters whose learning rate is multiplied by another number than 1.
    """

    def __init__(
        self, model: nn.Module, precision: Precision = "float32", rates: Mapping[str, float] | None = None
    ) -> None:
        self.model = model
        named = list(model.named_parameters())  # each once, by identity
        if not named:
            raise ValueError("the model has no parameters")
        trainable = [(n, p) for n, p in named if p.requires_grad]
        # Decayed groups first, in the order in which rates occur: the layout depends on the model alone.
        rate_of = {n: 1.0 if rates is None else rates.get(n, 1.0) for n, _ in trainable}
        kinds = [(decayed, rate) for decayed in (True, False) for rate in dict.fromkeys(rate_of.values())]
        groups = [[(n, p) for n, p in trainable if (p.dim() > 1, rate_of[n]) == kind] for kind in kinds]
        self._slots, ends = _assign_offsets([*groups, [(n, p) for n, p in named if not p.requires_grad]])
        spans = map(slice, [0, *ends], ends)
        self.parts = [
            ParamGroup(span, *kind) for span, kind in zip(spans, kinds, strict=False) if span.stop > span.start
        ]
        """What is trained, end to end."""
        self.n_trainable = self.parts[-1].span.stop if self.parts else 0
        device = named[0][1].device
        dtype = torch.float64 if any(p.dtype == torch.float64 for _, p in named) else torch.float32
        self.master = torch.zeros(ends[-1], dtype=dtype, device=device)
        for slot in self._slots:
            # Padding between parameters stays zero, which keeps norms over the whole buffer right.
            slot.view(self.master).copy_(slot.parameter.detach())
        self.gradient = torch.zeros(self.n_trainable, dtype=dtype, device=device)
        if precision == "bfloat16":
            self.working, self._local = self.master.to(torch.bfloat16), self.gradient.to(torch.bfloat16)
        else:
            self.working, self._local = self.master, self.gradient
        self._show(self.working)
        self._gradients = [(slot, slot.view(self._local)) for slot in self._slots if slot.parameter.requires_grad]
        for slot, view in self._gradients:
            # Autograd adds to an existing .grad in place; a None would be replaced by a fresh tensor.
            slot.parameter.grad = view
        self._n_accumulated = 0

    def accumulate_grads(self) -> None:
        """Take in the gradient of one micro-batch, after its backward pass."""
        for slot, view in self._gradients:
            if slot.parameter.grad is not view:
                raise RuntimeError(f"the gradient of '{slot.name}' was replaced: zero gradients in place, if at all")
        if self._local is not self.gradient:
            # Sums over micro-batches in bfloat16 would lose what is below 1/256 of the sum.
            # A copy for the first micro-batch saves zeroing and adding.
            if self._n_accumulated == 0:
                self.gradient.copy_(self._local)
            else:
                self.gradient.add_(self._local)
            self._local.zero_()
        self._n_accumulated += 1

    def all_reduce_grads(self, reduce: Callable[[Tensor], None] | None) -> None:
        """Sum the gradient over ranks in place, by one call; nothing to do without ``reduce``."""
        if reduce is not None:
            reduce(self.gradient)

    def grad_norm(self) -> Tensor:
        """Return the Euclidean norm of the gradient, a scalar, without waiting for the device."""
        # In blocks: one float32 sum of squares over 60 M elements is off by 0.5 % on CPU, this one by 1e-6.
        norm: Tensor = torch.linalg.vector_norm(torch.linalg.vector_norm(self.gradient.view(-1, _NORM_BLOCK), dim=1))
        return norm

    def zero_grad(self) -> None:
        """Zero the gradients for the next step."""
        self.gradient.zero_()
        if self._local is not self.gradient:
            self._local.zero_()  # a backward pass that failed before accumulate() leaves its gradients there
        self._n_accumulated = 0

    def sync_working_copy(self) -> None:
        """Give the module the master weights, after they changed."""
        if self.working is not self.master:
            self.working.copy_(self.master)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return name -> view of a buffer laid out like ``master`` (or its trainable part), without copying."""
        return {slot.name: slot.view(flat) for slot in self._slots if slot.start < len(flat)}

    @contextmanager
    def use_buffer(self, flat: Tensor) -> Iterator[nn.Module]:
        """Let the module compute with the weights ``flat`` (laid out like ``master``); nothing is copied.

        For evaluation only: gradients must not be taken meanwhile.
        """
        self._show(flat)
        try:
            yield self.model
        finally:
            self._show(self.working)

    def _show(self, flat: Tensor) -> None:
        for slot in self._slots:
            # Through .data: the parameter object stays the same for autograd and for tied modules.
            slot.parameter.data = slot.view(flat)


def _assign_offsets(groups: list[list[tuple[str, nn.Parameter]]]) -> tuple[list[_Slot], list[int]]:
    """Place the parameters of each group one after another; return the slots and where each group ends."""
    slots, ends, place = [], [], 0
    for group in groups:
        for name, parameter in group:
            slots.append(_Slot(name, parameter, place))
            place += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT  # rounded up
        # Groups end on a block of the norm. What lies between is zero and stays zero under AdamW.
        place = -(-place // _NORM_BLOCK) * _NORM_BLOCK
        ends.append(place)
    return slots, ends


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
