"""AdamW and Muon on flat buffers of parameters, gradients, moments and averages.

With one buffer of each, AdamW takes three kernels, one read for the gradient norm and one all-reduce::

    master      [ decayed matrices | other trainable | Muon | frozen ]   float32 (float64 for a float64 model)
    working     [ the same in bfloat16, or master itself             ]   used in the forward and backward passes
    gradient    [ decayed matrices | other trainable | Muon ]            dtype of master, summed over micro-batches
    exp_avg     [ decayed matrices | other trainable | Muon ]            Muon's momentum is such a mean, too
    exp_avg_sq  [ decayed matrices | other trainable ]

Each of the trainable sections is further split by learning rate if ``rates`` has different values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from attnkit.training.config import OptimizationConfig

if TYPE_CHECKING:
    from attnkit.training.muon import Muon

_ALIGNMENT = 64  # elements: every parameter starts on a cache line, also in bfloat16
_NORM_BLOCK = 4096  # elements whose squares are summed at once

Precision = Literal["float32", "bfloat16"]
Tensors = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Model tensors by name, and training-only tensors by name: ``exp_avg.*``, ``exp_avg_sq.*`` and, with a moving
average, ``weights.*``, the weights being trained. Names are those of parameters and buffers in the model. Matrices of
Muon have no ``exp_avg_sq.*``."""


class _Slot(NamedTuple):
    """Offset of one parameter in the flat buffers."""

    name: str
    parameter: nn.Parameter
    start: int

    def view(self, flat: Tensor) -> Tensor:
        return flat[self.start : self.start + self.parameter.numel()].view(self.parameter.shape)


class ParamGroup(NamedTuple):
    """Adjacent parameters with the same optimizer, weight decay and learning rate."""

    span: slice
    muon: bool  #: whether Muon updates them, not AdamW
    decayed: bool  #: whether weight decay applies: to matrices only
    rate: float  #: factor of the learning rate
    step: Tensor  #: () number of updates; on the device, so that an update never waits for the host


class FlatParameterStore:
    """Parameters, gradients, moments and average of a model, unsharded on every rank.

    The constructor moves the parameters into flat buffers. Autograd accumulates into views of a flat buffer, so
    gradients are zeroed (``zero_grad``), never set to None. All ranks must call every method.

    Args:
        model: Model on its device; afterwards, no other code may move or cast its parameters.
        config: Settings of AdamW (Loshchilov and Hutter 2019), Muon, clipping and the moving average.
        precision: Data type of the working weights; gradients are summed in the data type of ``master``.
        rates: Factor of the learning rate by parameter name; 1 for missing names.
        matrices: Parameters that Muon updates, by name, with the number of rows of each map that they hold.
    """

    def __init__(
        self,
        model: nn.Module,
        config: OptimizationConfig,
        precision: Precision = "float32",
        rates: Mapping[str, float] | None = None,
        matrices: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.model, self._config = model, config
        self.n_updates = 0
        """Number of optimizer updates, on which the bias correction depends."""
        named = list(model.named_parameters())  # tied weights occur only once
        if not named:
            raise ValueError("the model has no parameters")
        self.device = device = named[0][1].device
        dtype = torch.float64 if any(p.dtype == torch.float64 for _, p in named) else torch.float32
        trainable = [(n, p) for n, p in named if p.requires_grad]
        # Muon's groups last, rates in order of first occurrence: the layout depends only on model and settings.
        matrices = matrices or {}
        rate_of = {n: 1.0 if rates is None else rates.get(n, 1.0) for n, _ in trainable}
        sections = ((False, True), (False, False), (True, True))  # (Muon, decayed)
        kinds = [(*section, rate) for section in sections for rate in dict.fromkeys(rate_of.values())]
        kind_of = {n: (n in matrices, p.dim() > 1, rate_of[n]) for n, p in trainable}
        groups = [[(n, p) for n, p in trainable if kind_of[n] == kind] for kind in kinds]
        self._slots, ends = _assign_offsets([*groups, [(n, p) for n, p in named if not p.requires_grad]])
        # Frozen parameters are the last group, which has no kind, so zip drops it.
        spans = map(slice, [0, *ends], ends)
        self.parts = [
            ParamGroup(span, *kind, torch.zeros((), device=device))
            for span, kind in zip(spans, kinds, strict=False)
            if span.stop > span.start
        ]
        n_trainable = max((group.span.stop for group in self.parts), default=0)
        n_adamw = max((group.span.stop for group in self.parts if not group.muon), default=0)
        self.master = torch.zeros(ends[-1], dtype=dtype, device=device)
        for slot in self._slots:
            # Padding between parameters stays zero, so norms over the whole buffer are correct.
            slot.view(self.master).copy_(slot.parameter.detach())
        # Frozen parameters come after the trainable ones: gradient and moments end before them.
        self.gradient = torch.zeros(n_trainable, dtype=dtype, device=device)
        self.exp_avg, self.exp_avg_sq = torch.zeros_like(self.gradient), torch.zeros_like(self.gradient[:n_adamw])
        if precision == "bfloat16":
            self.working, self._local = self.master.to(torch.bfloat16), self.gradient.to(torch.bfloat16)
        else:
            self.working, self._local = self.master, self.gradient
        self._point_at(self.working)
        self._gradients = [(slot, slot.view(self._local)) for slot in self._slots if slot.parameter.requires_grad]
        for slot, view in self._gradients:
            # Autograd adds to an existing .grad in place, but would replace None with a new tensor.
            slot.parameter.grad = view
        self._muon = {group.span.start: self._build_muon(group.span, matrices) for group in self.parts if group.muon}
        self._n_accumulated = 0
        # The average follows the master weights, which are never rounded to bfloat16.
        self.average = None if config.ema_decay is None else self.master.clone()

    def accumulate_grads(self) -> None:
        """Add the gradient of one micro-batch to the sum, after its backward pass."""
        for slot, view in self._gradients:
            if slot.parameter.grad is not view:
                raise RuntimeError(f"the gradient of '{slot.name}' was replaced: zero gradients in place")
        if self._local is not self.gradient:
            # In bfloat16, sums over micro-batches would lose values below 1/256 of the sum.
            # Copying the first micro-batch saves zeroing and adding.
            if self._n_accumulated == 0:
                self.gradient.copy_(self._local)
            else:
                self.gradient.add_(self._local)
            self._local.zero_()
        self._n_accumulated += 1

    def all_reduce_grads(self, reduce: Callable[[Tensor], None] | None) -> None:
        """Sum the gradient over ranks in one call; ``reduce`` is None for a single rank."""
        if reduce is not None:
            reduce(self.gradient)

    def grad_norm(self) -> Tensor:
        """Return the L2 norm of the gradient as a scalar, without device synchronization."""
        # In blocks: a single float32 sum of squares over 60 M elements is off by 0.5% on CPU, this one by 1e-6.
        blocks = self.gradient.view(-1, _NORM_BLOCK)  # (n / block, block)
        norm: Tensor = torch.linalg.vector_norm(torch.linalg.vector_norm(blocks, dim=1))
        return norm

    @torch.no_grad()
    def update(self, learning_rate: float, norm: float) -> None:
        """Clip the gradient of norm ``norm``, take a step and update the average."""
        # The norm is a parameter: all ranks use that of rank 0, so that rounding cannot make them diverge.
        config, limit = self._config, self._config.clip_norm
        if limit is not None and norm > limit:
            self.gradient.mul_(limit / norm)  # Pascanu et al. 2013; one buffer, so one kernel
        for span, muon, decayed, rate, step in self.parts:
            if muon:
                sections = self.master[span], self.gradient[span], self.exp_avg[span]
                self._muon[span.start].update(*sections, learning_rate * rate, config.weight_decay)
                continue
            # torch's fused kernel, once per group; it increments the step for its bias correction.
            adamw(
                [self.master[span]],
                [self.gradient[span]],
                [self.exp_avg[span]],
                [self.exp_avg_sq[span]],
                [],
                [step],
                fused=True,
                amsgrad=False,
                beta1=config.betas[0],
                beta2=config.betas[1],
                lr=learning_rate * rate,
                weight_decay=config.weight_decay if decayed else 0.0,
                eps=config.eps,
                maximize=False,
            )
        self.n_updates += 1
        self._sync_working_copy()
        if self.average is not None and config.ema_decay is not None:
            # w <- d w + (1 - d) new, in one kernel.
            self.average.lerp_(self.master, 1 - decay_at(config.ema_decay, self.n_updates))

    def zero_grad(self) -> None:
        """Zero the gradients for the next step."""
        self.gradient.zero_()
        if self._local is not self.gradient:
            self._local.zero_()  # a failed backward pass, before accumulate_grads, leaves gradients there
        self._n_accumulated = 0

    def inference(self) -> AbstractContextManager[nn.Module]:
        """Make the model use the saved weights: full precision, averaged if configured."""
        return self.use_buffer(self._saved())

    @contextmanager
    def use_weights(self, tensors: Mapping[str, Tensor]) -> Iterator[nn.Module]:
        """Make the model use the weights ``tensors`` inside the ``with`` block."""
        # This takes a second copy of the model, only for evaluation with other weights.
        flat = torch.zeros_like(self.master)
        for name, view in self.views(flat).items():
            view.copy_(tensors[name])
        with self.use_buffer(flat) as model:
            yield model

    @contextmanager
    def use_buffer(self, flat: Tensor) -> Iterator[nn.Module]:
        """Make the model use ``flat``, which is laid out like ``master``, without a copy.

        For evaluation only: no gradients may be computed inside the ``with`` block.
        """
        self._point_at(flat)
        try:
            yield self.model
        finally:
            self._point_at(self.working)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return views by name of a buffer laid out like ``master`` or its trainable part."""
        return {slot.name: slot.view(flat) for slot in self._slots if slot.start < len(flat)}

    def tensors(self) -> Tensors:
        """Return all tensors to save, as views that are valid until the next step."""
        model = self.views(self._saved()) | buffers_of(self.model)
        buffers = {"exp_avg": self.exp_avg, "exp_avg_sq": self.exp_avg_sq}
        if self.average is not None:
            # The model file contains the average, so the weights being trained are saved separately.
            buffers["weights"] = self.master
        optimizer = {f"{kind}.{n}": view for kind, flat in buffers.items() for n, view in self.views(flat).items()}
        return model, optimizer

    shapes = tensors  #: returns tensors with the names, shapes and types of ``tensors``, on every rank

    def restore(self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], n_updates: int) -> None:
        """Restore tensors of a checkpoint, as ``tensors`` returned them; shapes must fit."""
        with torch.no_grad():
            for own, saved in zip(self.tensors(), (model, optimizer), strict=True):
                for name, tensor in own.items():
                    tensor.copy_(saved[name])
        # The master weights have been restored; the module uses the working copy.
        self._sync_working_copy()
        self.zero_grad()
        self.n_updates = n_updates
        for group in self.parts:
            group.step.fill_(n_updates)

    def _build_muon(self, span: slice, matrices: Mapping[str, Sequence[int]]) -> Muon:
        from attnkit.training.muon import Muon  # imported here: most runs use AdamW alone

        maps: list[tuple[Tensor, Tensor]] = []
        for slot in self._slots:
            if span.start <= slot.start < span.stop:
                # Weights per head (H, rows, columns) are flattened to (H · rows, columns).
                pair = (slot.view(flat).flatten(0, -2) for flat in (self.master, self.gradient))
                maps += zip(*(torch.split(whole, list(matrices[slot.name])) for whole in pair), strict=True)
        return Muon(maps, self._local.dtype, self._config.muon_momentum)

    def _saved(self) -> Tensor:
        return self.master if self.average is None else self.average

    def _sync_working_copy(self) -> None:
        if self.working is not self.master:
            self.working.copy_(self.master)

    def _point_at(self, flat: Tensor) -> None:
        for slot in self._slots:
            # Through .data: the parameter object stays the same for autograd and for tied modules.
            slot.parameter.data = slot.view(flat)


def _assign_offsets(groups: list[list[tuple[str, nn.Parameter]]]) -> tuple[list[_Slot], list[int]]:
    """Assign consecutive offsets to parameters; return the slots and the group ends."""
    slots, ends, offset = [], [], 0
    for group in groups:
        for name, parameter in group:
            slots.append(_Slot(name, parameter, offset))
            offset += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT  # rounded up
        # Groups end at a block of the norm. The gap is zero and stays zero under AdamW.
        offset = -(-offset // _NORM_BLOCK) * _NORM_BLOCK
        ends.append(offset)
    return slots, ends


def decay_at(decay: float, n_updates: int) -> float:
    """Return the decay of the weight average at update ``n_updates``, from 1.

    Exponential form of Polyak and Juditsky 1992. At first it is (1 + n) / (10 + n), so the initial weights fade fast.
    """
    return min(decay, (1 + n_updates) / (10 + n_updates))


def buffers_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the persistent buffers of a model."""
    # keep_vars: otherwise parameters are plain tensors that cannot be distinguished from buffers.
    return {n: t for n, t in model.state_dict(keep_vars=True).items() if not isinstance(t, nn.Parameter)}
