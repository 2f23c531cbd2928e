"""Preparation of models for training: replication, sharding and compilation."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import nn

from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.run_config import RunConfig
from attnkit.engine.task import Evaluation, EvaluationCancelled
from attnkit.errors import SystemFailure, UsageError
from attnkit.models.layers import transformer_layers
from attnkit.training.flat_optimizer import FlatParameterStore, Precision

if TYPE_CHECKING:
    from attnkit.training.fsdp import FsdpParameterStore

_MAX_VARIANTS = 64  #: maximum compiled variants per layer; batches, mode and precision need at most a dozen
_Result = TypeVar("_Result")


def compile_layers(module: nn.Module, config: RunConfig, device: torch.device) -> None:
    """Mark each layer for compilation at its first call, if ``torch_compile`` is set.

    Layers are compiled one by one: they have the same structure, so one compilation serves all of them. Sizes are
    dynamic from the start, so the result of a step does not depend on earlier steps. Parameter names do not change.
    """
    if not config.torch_compile:
        return
    import torch._dynamo  # slow to import

    if device.type != "cpu":  # on the CPU, torch compiles in threads of this process
        # SIGTERM often goes to a whole process group. If it ended torch's compiler processes, training would wait for
        # them forever instead of stopping after the step. So they start with it blocked; they end with their parent.
        masks = hasattr(signal, "pthread_sigmask")
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}) if masks else None
        try:
            with suppress(ImportError, AttributeError):  # private in torch; without it, processes start later
                from torch._inductor.async_compile import AsyncCompile

                AsyncCompile.warm_pool()
        finally:
            if before is not None:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # Beyond the limit, torch silently falls back to eager mode.
    torch._dynamo.config.recompile_limit = max(_MAX_VARIANTS, torch._dynamo.config.recompile_limit)
    for block in transformer_layers(module):
        block.compile(dynamic=True)


def run_eager(call: Callable[[nn.Module], _Result], config: RunConfig) -> Callable[[nn.Module], _Result]:
    """Return ``call`` in eager mode: many batch sizes would mean many compilations."""
    if not config.torch_compile:
        return call

    def plain(model: nn.Module) -> _Result:
        # A stance rather than a copy: the compiled layers stay ready for the next step.
        with torch.compiler.set_stance("force_eager"):
            return call(model)

    return plain


def compiler_failure(error: Exception) -> SystemFailure | None:
    """Return the failure to report for an error of torch's compiler, else None."""
    from torch._dynamo.exc import TorchDynamoException  # slow to import

    if not isinstance(error, TorchDynamoException):
        return None
    message = [line.strip() for line in str(error).splitlines() if line.strip()]  # the backend, then its message
    return SystemFailure(
        f"torch could not compile the model: {' '.join(message[:2])[:200]}",
        where="torch_compile",
        help="set torch_compile to false, or install torch's compiler (a C++ compiler; Triton on a GPU)",
    )


def uses_fsdp(config: RunConfig, ranks: ProcessGroup) -> bool:
    """Return whether weights are sharded; ranks then need equal micro-batch counts."""
    return config.fsdp and ranks.world > 1


def muon_matrices(module: nn.Module, config: RunConfig) -> dict[str, tuple[int, ...]]:
    """Return name -> rows of each map, for the weights that Muon trains.

    Raises ``UsageError`` if the run uses Muon and trains none.
    """
    if config.optimization.optimizer != "muon":
        return {}
    from attnkit.models.hidden_matrices import hidden_matrices  # imported here: most runs use AdamW alone

    if not (found := hidden_matrices(module)):
        raise UsageError(
            "no matrix of a hidden layer is trained, and Muon trains no others",
            where="optimization.optimizer",
            help="set optimization.optimizer to adamw",
        )
    return found


def build_parameter_store(
    module: nn.Module, config: RunConfig, precision: Precision, ranks: ProcessGroup, rates: Mapping[str, float] | None
) -> FlatParameterStore | FsdpParameterStore:
    """Return weights with their optimizer, replicated or sharded over the ranks.

    ``precision`` is that of the working copy of the weights; ``rates`` maps parameter names to factors of the learning
    rate. Raises ``UsageError`` if ``fsdp`` is set for a model that does not support it, or Muon for one without
    matrices that it could train.
    """
    if not uses_fsdp(config, ranks):
        return FlatParameterStore(module, config.optimization, precision, rates, muon_matrices(module, config))
    from attnkit.training.fsdp import FsdpParameterStore, has_entry  # slow to import

    # FSDP must know by which method a step enters the model.
    if not has_entry(module):
        raise UsageError("this model does not support FSDP", where="fsdp", help="set fsdp to false")
    return FsdpParameterStore(module, transformer_layers(module), config.optimization, precision, rates)


def broadcast_metrics(
    evaluation: Evaluation, ranks: ProcessGroup, metrics: tuple[str, ...]
) -> Callable[[Any], Mapping[str, float] | None]:
    """Return an evaluation on rank 0 with broadcast metrics, None if cancelled.

    Ranks on different machines may round differently, but must agree on the best checkpoint.
    """
    names = sorted(metrics)  # the order in which a resumed run reads them from its checkpoint

    def scores(model: Any) -> Mapping[str, float] | None:
        with ranks.synchronized():
            own = None
            if ranks.rank == 0:
                with suppress(EvaluationCancelled):
                    own = evaluation(model)
        # A single process does not need a broadcast.
        if ranks.world == 1:
            return own
        # Gloo, the backend of all devices except CUDA, reduces on the CPU.
        where = evaluation.device if evaluation.device.type == "cuda" else torch.device("cpu")
        # The first element is 1 if the evaluation was completed; ranks other than 0 add zeros.
        mine = [0.0] * (len(names) + 1) if own is None else [1.0, *(own[name] for name in names)]
        # A sum with a single non-zero summand is a broadcast, so the process group needs only one operation.
        values = torch.tensor(mine, dtype=torch.float64, device=where)
        ranks.reduce(values)
        done, *shared = values.tolist()
        return dict(zip(names, shared, strict=True)) if done else None

    return scores
