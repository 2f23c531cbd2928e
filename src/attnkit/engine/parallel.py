"""What the ranks of a run share: the weights, where each holds a part of them, and one rank's scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.run_config import RunConfig
from attnkit.engine.task import Evaluation
from attnkit.errors import UsageError
from attnkit.models.layers import transformer_layers
from attnkit.training.flat_parameters import Precision
from attnkit.training.flat_weights import FlatParameterStore
from attnkit.training.parameter_store import ParameterStore


def uses_fsdp(config: RunConfig, ranks: ProcessGroup) -> bool:
    """Return whether each rank holds a share of the weights, so that all must compute equally often."""
    return config.fsdp and ranks.world > 1


def build_parameter_store(
    module: torch.nn.Module,
    config: RunConfig,
    precision: Precision,
    ranks: ProcessGroup,
    rates: Mapping[str, float] | None,
) -> ParameterStore:
    """Return the weights as they lie on the ranks: all on each, or a share on each. ``rates``: see ``FlatParameters``.

    Raises:
        UsageError: shares are asked for, and this kind of model has none.
    """
    if not uses_fsdp(config, ranks):
        return FlatParameterStore(module, config.optimization, precision, rates)
    from attnkit.training.fsdp import FsdpParameterStore, has_entry  # takes its time to import

    if not has_entry(module):
        raise UsageError("this kind of model cannot be shared out", where="fsdp", help="set fsdp to false")
    return FsdpParameterStore(module, transformer_layers(module), config.optimization, precision, rates)


def broadcast_metrics(
    evaluation: Evaluation, ranks: ProcessGroup, metrics: tuple[str, ...]
) -> Callable[[Any], Mapping[str, float] | None]:
    """Let rank 0 score and tell the others: one answer, whatever machine they run on; None if it was given up."""
    names = sorted(metrics)  # the order in which a run that goes on reads them from its checkpoint

    def scores(model: Any) -> Mapping[str, float] | None:
        found: Mapping[str, float] | None = None
        with ranks.synchronized():
            if ranks.rank == 0:
                found = evaluation(model)
        if ranks.world == 1:
            return found
        # As Ranks itself does: gloo, which all devices but CUDA's go by, sums on the CPU.
        where = evaluation.device if evaluation.device.type == "cuda" else torch.device("cpu")
        mine = [0.0] * (len(names) + 1) if found is None else [1.0, *(found[name] for name in names)]
        values = torch.tensor(mine, dtype=torch.float64, device=where)
        ranks.reduce(values)
        done, *shared = values.tolist()
        return dict(zip(names, shared, strict=True)) if done else None

    return scores
