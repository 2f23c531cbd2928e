"""Distribute a run over ranks: replicated or sharded weights, and the scores of rank 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.run_config import RunConfig
from attnkit.engine.task import Evaluation
from attnkit.errors import UsageError
from attnkit.models.layers import transformer_layers
from attnkit.training.flat_optimizer import FlatParameterStore, Precision
from attnkit.training.parameter_store import ParameterStore


def uses_fsdp(config: RunConfig, ranks: ProcessGroup) -> bool:
    """Return whether the weights are sharded, so that all ranks must compute equally many micro-batches."""
    return config.fsdp and ranks.world > 1


def build_parameter_store(
    module: torch.nn.Module,
    config: RunConfig,
    precision: Precision,
    ranks: ProcessGroup,
    rates: Mapping[str, float] | None,
) -> ParameterStore:
    """Return the weights with their optimizer: replicated on each rank, or sharded over the ranks.

    Args:
        module: The model, on its device.
        config: The run's configuration.
        precision: Precision of the working copy of the weights.
        ranks: The process group.
        rates: Factor of the learning rate per parameter name; see ``FlatParameters``.

    Raises:
        UsageError: ``fsdp`` is set for a model that does not support it.
    """
    if not uses_fsdp(config, ranks):
        return FlatParameterStore(module, config.optimization, precision, rates)
    from attnkit.training.fsdp import FsdpParameterStore, has_entry  # slow to import

    if not has_entry(module):
        raise UsageError("this model does not support FSDP", where="fsdp", help="set fsdp to false")
    return FsdpParameterStore(module, transformer_layers(module), config.optimization, precision, rates)


def broadcast_metrics(
    evaluation: Evaluation, ranks: ProcessGroup, metrics: tuple[str, ...]
) -> Callable[[Any], Mapping[str, float] | None]:
    """Return an evaluation that rank 0 computes and broadcasts; it gives None if a stop cancelled it.

    Ranks on different machines may round differently. Decisions on the best checkpoint need one answer.
    """
    names = sorted(metrics)  # a resumed run reads them from its checkpoint in this order

    def scores(model: Any) -> Mapping[str, float] | None:
        found: Mapping[str, float] | None = None
        with ranks.synchronized():
            if ranks.rank == 0:
                found = evaluation(model)
        if ranks.world == 1:
            return found
        # Gloo, the backend of all devices but CUDA, reduces on the CPU.
        where = evaluation.device if evaluation.device.type == "cuda" else torch.device("cpu")
        # The first element says whether the evaluation was completed; ranks other than 0 add zeros.
        mine = [0.0] * (len(names) + 1) if found is None else [1.0, *(found[name] for name in names)]
        # A sum in which all but one are zero is a broadcast, and the process group needs one operation only.
        values = torch.tensor(mine, dtype=torch.float64, device=where)
        ranks.reduce(values)
        done, *shared = values.tolist()
        return dict(zip(names, shared, strict=True)) if done else None

    return scores
