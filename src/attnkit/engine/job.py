"""The job of the training loop, built from a task's parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnkit.data.loader import BatchLoader
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.compile import run_eager
from attnkit.engine.parallel import broadcast_metrics, uses_fsdp
from attnkit.engine.run_config import RunConfig
from attnkit.engine.task import AnyTask, Evaluation
from attnkit.training.loop import TrainingJob


def build_job(
    task: AnyTask,
    config: RunConfig,
    model: Any,
    data: Any,
    evaluation: Evaluation,
    ranks: ProcessGroup,
    stop: Callable[[], bool] | None = None,
) -> TrainingJob:
    """Return what the training loop needs, and no more: model, batches of this rank, loss and evaluation."""
    loader = BatchLoader(
        task.dataset(data),
        config.seed,
        config.optimization.batch_tokens,
        config.optimization.gradient_accumulation_steps,
        ranks.rank,
        ranks.world,
        task.sampler(config, data),
        uses_fsdp(config, ranks),
    )
    return TrainingJob(
        model=model,
        feed=loader,
        loss=task.loss(config, model, data, evaluation.device),
        config=config.training,
        evaluate=run_eager(broadcast_metrics(evaluation, ranks, config.metrics), config),
        seed=config.seed,
        rank=ranks.rank,
        reduce=ranks.reduce if ranks.world > 1 else None,
        stop=stop,
        prefetch=evaluation.device.type == "cuda",
    )
