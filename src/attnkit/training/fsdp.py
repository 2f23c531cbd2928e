"""Sharded training: FSDP2 of PyTorch (``fully_shard``) instead of flat buffers.

Parameters, gradients, moments and moving average are sharded along their first dimension. A rank has the full weights
of a block only while it computes the block. Checkpoints are unsharded, with the same files as without FSDP.
"""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from attnkit.training.config import OptimizationConfig
from attnkit.training.flat_optimizer import Precision, Tensors, buffers_of, decay_at

# FSDP gathers weights in hooks on forward, but our models are called through other methods.
ENTRY = "hidden"  #: method, besides ``forward``, that a step calls first; any other method is called after it


class FsdpParameterStore:
    """Sharded parameter store with the methods of ``FlatParameterStore``.

    The constructor requires a process group and shards the model. All ranks must run the same number of passes, since
    all of them take part in gathering a block.

    Args:
        model: Model on its device, the same on every rank.
        blocks: Modules of the model whose weights are gathered one after another.
        config: Settings of AdamW, clipping and the moving average.
        precision: With bfloat16, weights are gathered and used in bfloat16; gradients are summed in float32.
        rates: Factor of the learning rate by parameter name; 1 for missing names.

    Raises:
        ValueError: The model has neither ``forward`` nor ``ENTRY``.
    """

    def __init__(
        self,
        model: nn.Module,
        blocks: Iterable[nn.Module],
        config: OptimizationConfig,
        precision: Precision = "float32",
        rates: Mapping[str, float] | None = None,
    ) -> None:
        if not has_entry(model):
            raise ValueError(f"{type(model).__name__} has no method {ENTRY}")
        self.model, self.n_updates, self._config = model, 0, config
        # Read before sharding, while the parameters are plain tensors.
        self.device = next(model.parameters()).device
        # An unsharded skeleton for evaluation: torch's hooks on the sharded model would gather on all ranks.
        self._plain = _emptied(copy.deepcopy(model))
        low = precision == "bfloat16"
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low else MixedPrecisionPolicy()
        # One dimension: parameters are sharded over all ranks.
        self._mesh = init_device_mesh(self.device.type, (torch.distributed.get_world_size(),))
        # Blocks before the model: the remaining parameters become a separate group.
        for part in [*blocks, model]:
            fully_shard(part, mesh=self._mesh, mp_policy=policy)
        for part in model.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)  # losses are divided by global counts, so gradients add up
                part.set_force_sum_reduction_for_comms(True)
        if hasattr(model, ENTRY):
            register_fsdp_forward_method(model, ENTRY)
        # After sharding: the names are the same, but the parameters are DTensors.
        self._named = dict(model.named_parameters())
        # Frozen parameters are sharded too, but have neither gradient nor moments.
        self._trained = {name: p for name, p in self._named.items() if p.requires_grad}
        groups: dict[tuple[bool, float], list[Tensor]] = {}  # by (is a matrix, rate)
        for name, p in self._trained.items():
            groups.setdefault((p.dim() > 1, (rates or {}).get(name, 1.0)), []).append(p)
        options = [
            # "rate" is not an option of torch: update() multiplies the learning rate of the group by it.
            {"params": parts, "weight_decay": config.weight_decay if decayed else 0.0, "rate": rate}
            for (decayed, rate), parts in groups.items()
        ]
        self._optimizer = torch.optim.AdamW(options, betas=config.betas, eps=config.eps, foreach=True)
        for p in self._trained.values():
            # Created here, not at the first step, so that a checkpoint can be restored into them.
            moments = {name: torch.zeros_like(p) for name in ("exp_avg", "exp_avg_sq")}
            self._optimizer.state[p] = {"step": torch.zeros(()), **moments}
        # The average is sharded like the weights.
        averaged = config.ema_decay is not None
        self._average = {name: p.detach().clone() for name, p in self._named.items()} if averaged else None

    def accumulate_grads(self) -> None:
        """Do nothing: the backward pass sums gradients over ranks and micro-batches."""

    def all_reduce_grads(self, reduce: Callable[[Tensor], None] | None) -> None:
        """Do nothing, for the same reason as in ``accumulate_grads``."""

    def grad_norm(self) -> Tensor:
        """Return the L2 norm of the whole gradient, which is the same on every rank."""
        # Squares add up over shards; norms do not.
        squares = torch.zeros((), dtype=torch.float64, device=self.device)
        for p in self._trained.values():
            if p.grad is not None:
                local = p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad
                squares += torch.linalg.vector_norm(local, dtype=torch.float64).square()
        # Sum over shards; every rank then takes the same square root.
        torch.distributed.all_reduce(squares)
        return squares.sqrt()

    @torch.no_grad()
    def update(self, learning_rate: float, norm: float) -> None:
        """Clip the gradient, take a step and update the average, all on the local shard."""
        limit = self._config.clip_norm
        for p in self._trained.values():
            if p.grad is None:  # not used in this step: its gradient is zero, and its weight decays
                p.grad = torch.zeros_like(p)
            elif limit is not None and norm > limit:
                p.grad.mul_(limit / norm)
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate * group["rate"]
        self._optimizer.step()
        self.n_updates += 1
        if self._average is not None and self._config.ema_decay is not None:
            decay = decay_at(self._config.ema_decay, self.n_updates)
            for name, mean in self._average.items():
                mean.lerp_(self._named[name].detach(), 1 - decay)

    def zero_grad(self) -> None:
        """Discard the gradients."""
        self._optimizer.zero_grad(set_to_none=True)

    def inference(self) -> AbstractContextManager[nn.Module]:
        """Provide an unsharded model with the saved weights on rank 0."""
        return self.use_weights(self._gather(self._saved()))

    @contextmanager
    def use_weights(self, tensors: Mapping[str, Tensor]) -> Iterator[nn.Module]:
        """Provide an unsharded model with these weights on rank 0, besides the shards."""
        # Other ranks get no tensors and leave the skeleton empty.
        for name, p in self._plain.named_parameters():
            if name in tensors:
                p.data = tensors[name].to(self.device)
        try:
            yield self._plain.eval()
        finally:
            _emptied(self._plain)

    def tensors(self) -> Tensors:
        """Gather all tensors to save on rank 0; other ranks get empty mappings."""
        model = self._gather(self._saved())
        if torch.distributed.get_rank() == 0:
            model |= buffers_of(self.model)
        optimizer: dict[str, Tensor] = {}
        for kind, shares in self._moments().items():
            optimizer |= {f"{kind}.{name}": tensor for name, tensor in self._gather(shares).items()}
        return model, optimizer

    def shapes(self) -> Tensors:
        """Return the same as ``tensors``, but with weights on the meta device."""
        model = {name: _shape(p) for name, p in self._named.items()} | buffers_of(self.model)
        kinds = self._moments()
        return model, {f"{kind}.{name}": _shape(p) for kind, shares in kinds.items() for name, p in shares.items()}

    @torch.no_grad()
    def restore(self, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], n_updates: int) -> None:
        """Restore the local shards of a checkpoint saved by any number of ranks."""
        for name, buffer in buffers_of(self.model).items():
            buffer.copy_(model[name])
        pairs = [(share, model[name]) for name, share in self._saved().items()]
        for kind, shares in self._moments().items():
            pairs += [(share, optimizer[f"{kind}.{name}"]) for name, share in shares.items()]
        for share, whole in pairs:
            assert isinstance(share, DTensor)
            # src_data_rank=None: every rank has read the checkpoint, so nothing is broadcast.
            sharded = distribute_tensor(whole.to(self.device), self._mesh, share.placements, src_data_rank=None)
            share.to_local().copy_(sharded.to_local())
        self.n_updates = n_updates
        for p in self._trained.values():
            self._optimizer.state[p]["step"].fill_(n_updates)
        self.zero_grad()

    def _saved(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self._named.items()} if self._average is None else self._average

    def _moments(self) -> dict[str, dict[str, Tensor]]:
        state = self._optimizer.state
        kinds = {kind: {n: state[p][kind] for n, p in self._trained.items()} for kind in ("exp_avg", "exp_avg_sq")}
        if self._average is None:
            return kinds
        return kinds | {"weights": {name: p.detach() for name, p in self._named.items()}}

    def _gather(self, shares: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gather full tensors one by one on rank 0's CPU; other ranks get an empty dict."""
        whole = {}
        first = torch.distributed.get_rank() == 0
        for name, share in shares.items():
            tensor = share.full_tensor() if isinstance(share, DTensor) else share
            if first:
                # Moved before the next one is gathered: the device holds one full tensor at a time.
                whole[name] = tensor.cpu()
        return whole


def has_entry(model: nn.Module) -> bool:
    """Return whether a model has ``forward`` or ``ENTRY``, one of which FSDP requires."""
    return type(model).forward is not nn.Module.forward or hasattr(model, ENTRY)


def _emptied(model: nn.Module) -> nn.Module:
    # Names and buffers stay; weights take no memory until use_weights provides them.
    for p in model.parameters():
        p.data = torch.empty(0, dtype=p.dtype, device=p.device)
    return model


def _shape(tensor: Tensor) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
