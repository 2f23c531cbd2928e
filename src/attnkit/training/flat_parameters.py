"""All parameters of a model as views of one flat buffer. Knows modules, nothing of losses, optimizers or ranks.

One buffer makes the optimizer three kernels, the gradient norm one read, and the exchange between ranks one call::

    master    [ decayed matrices | other trainable | frozen ]      float32 (float64 for a float64 model)
    working   [ the same in bfloat16, or master itself      ]      what the module computes with
    gradient  [ decayed matrices | other trainable ]               dtype of master, summed over micro-batches

Parameters whose learning rates differ lie apart, in each of the first two for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

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
