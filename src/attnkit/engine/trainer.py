"""The course of a training run, whatever its task: begin or go on, train, keep, finish. Yields what happens.

A ``Task`` hands in data, model, loss and evaluation; nothing here knows what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.loader import BatchLoader, Dataset, Position, Sampler
from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.distributed.process_group import ProcessGroup, join_process_group
from attnkit.engine.checkpointing import RunWriter
from attnkit.engine.compile import CompilerFailure, compile_errors, compile_layers, run_eager
from attnkit.engine.parallel import broadcast_metrics, build_parameter_store, uses_fsdp
from attnkit.engine.pretrained_embeddings import (
    EmbeddingSource,
    check_embeddings_conflict,
    init_embeddings,
    open_embeddings,
)
from attnkit.engine.registry import TASKS
from attnkit.engine.run_config import RunConfig
from attnkit.engine.stopping import stop_error
from attnkit.engine.task import Evaluation, Prepared, Sample, Task, task_of
from attnkit.engine.tensorboard import TensorBoardLogger
from attnkit.engine.vocabularies import check_init_conflicts
from attnkit.errors import DivergedError, UsageError
from attnkit.runtime.devices import choose_device, choose_precision, set_threads
from attnkit.runtime.processes import release_free_memory
from attnkit.training.flat_parameters import Precision
from attnkit.training.loop import EvaluationRecord, StepRecord, TrainingJob, fit
from attnkit.training.losses import LossTerm
from attnkit.training.prefetch import BatchSource
from attnkit.training.state import TrainState

_RELEASE_EVERY = 20  # steps; takes about a millisecond


@dataclass(frozen=True)
class TrainingStarted:
    """Training starts or goes on."""

    step: int
    n_parameters: int
    counts: Mapping[str, int]
    device: str
    precision: str
    unit: str = "pairs"
    """What ``counts`` count."""


@dataclass(frozen=True)
class Validated:
    """The development set was scored."""

    record: EvaluationRecord
    samples: list[Sample]


@dataclass(frozen=True)
class TrainingFinished:
    """The run is complete."""

    reason: str
    step: int
    best: str
    """The checkpoint that ``translate`` and other commands take."""
    metrics: Mapping[str, float]
    """Its scores on the development set."""
    already: bool = False
    """Nothing was left to do."""


Event = StatusEvent | WarningEvent | DataCheckEvent | TrainingStarted | StepRecord | Validated | TrainingFinished


@dataclass(frozen=True)
class TrainRequest:
    """What to train and where to keep it."""

    config: RunConfig
    path: Path
    overwrite: bool = False
    """Move an old run aside."""
    init_from: Path | None = None
    """A run whose vocabulary and weights this one begins with."""
    stop: Callable[[], bool] | None = None
    """Asked once a step, and between the batches of an evaluation, whether to save and end."""


def train(request: TrainRequest) -> Generator[Event, None, None]:
    """Train, or go on where an interrupted run of the same configuration stopped.

    Raises:
        UsageError: the folder holds a run of another configuration.
        StoppedError: a stop was asked for; a checkpoint is saved, by this call or by one before it.
        DivergedError: ten steps in a row were not finite.
    """
    config = request.config
    task_of(config.task)  # imported before anything is locked, or waited for by other ranks
    check_init_conflicts(config.vocabulary_files, request.init_from)
    check_embeddings_conflict(config, request.init_from)
    if request.init_from is not None and request.init_from.resolve() == request.path.resolve():
        raise UsageError("a run cannot begin with its own weights", where="--init-from", help="choose another -o")
    # Vectors that do not fit are refused before anything is made; a run that goes on has them in its weights.
    begins = request.overwrite or not RunFolder(request.path).steps()
    opened = open_embeddings(config) if begins else []
    device = choose_device(config.device)
    set_threads(config.threads)
    with join_process_group(device.type, config.rank_timeout, request.stop) as ranks:
        stops = request.stop is not None
        with RunWriter(request.path, config, ranks, request.overwrite, request.init_from, stops) as keeper:
            yield from _resume(request, keeper, device, ranks, opened)


def _resume(
    request: TrainRequest,
    writer: RunWriter,
    device: torch.device,
    ranks: ProcessGroup,
    opened: Sequence[EmbeddingSource | None],
) -> Iterator[Event]:
    yield from map(WarningEvent, writer.warnings)
    standing = writer.run_state
    if (reason := standing.finished) is not None:
        writer.repair_finished()
        yield TrainingFinished(reason, standing.step, standing.best, standing.best_scores(), already=True)
        return
    with ranks.guard_collectives():
        yield from _train(request, writer, device, ranks, opened)


def _train(
    request: TrainRequest,
    writer: RunWriter,
    device: torch.device,
    ranks: ProcessGroup,
    opened: Sequence[EmbeddingSource | None],
) -> Iterator[Event]:
    config = request.config
    task = task_of(config.task)
    prepared = yield from _prepare(task, config, writer, ranks)
    known = len(writer.warnings)
    with ranks.synchronized():
        said, state = _build(task, writer, device, prepared, opened, ranks)
        board = TensorBoardLogger(
            writer.folder.path / "tensorboard" if config.tensorboard and writer.is_writer else None, state.step
        )
    model = state.weights.model
    yield from [*said, *map(WarningEvent, writer.warnings[known:])]
    stop = None if request.stop is None else ranks.stop_requested
    evaluation = task.evaluation(config, prepared, device, stop)
    job = task.build_job(config, model, prepared, evaluation, ranks, stop)
    yield TrainingStarted(
        step=state.step,
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        counts=prepared.counts,
        device=device.type,
        precision=str(choose_precision(config.precision, device)).removeprefix("torch."),
        unit=TASKS[config.task].unit,
    )
    with board:
        for record in _run_loop(config, job, state, ranks):
            writer.log_and_save(record, state)
            board.add(record)
            if record.step % _RELEASE_EVERY == 0:
                release_free_memory()
            yield Validated(record, evaluation.samples) if isinstance(record, EvaluationRecord) else record
    if state.finished == "stopped":
        writer.save(state)
        raise stop_error(state.step)
    if (n_averaged := writer.run_state.n_averaged()) > 1:
        yield StatusEvent(f"averaging the last {n_averaged} checkpoints")
        scores = run_eager(broadcast_metrics(evaluation, ranks, config.metrics), config)
        writer.average(state, lambda shown: _scores_or_stop(scores(shown), state.step))
    writer.finish(state)
    yield TrainingFinished(str(state.finished), state.step, writer.run_state.best, writer.run_state.best_scores())


def _scores_or_stop(scores: Mapping[str, float] | None, step: int) -> Mapping[str, float]:
    """Return the scores. Raises ``StoppedError`` in their place, on every rank, if a stop was asked for meanwhile."""
    if scores is None:
        raise stop_error(step)
    return scores


def _build(
    task: Task,
    writer: RunWriter,
    device: torch.device,
    prepared: Prepared,
    opened: Sequence[EmbeddingSource | None],
    ranks: ProcessGroup,
) -> tuple[list[StatusEvent | WarningEvent], TrainState]:
    """Return the model with all that training changes, as the run's newest checkpoint left it or fresh.

    Before it stands what there is to say of the vectors that a fresh one begins with.
    """
    config = writer.config
    torch.manual_seed(config.seed)
    model = cast(torch.nn.Module, task.build_model(config, prepared))
    messages: list[StatusEvent | WarningEvent] = []
    if writer.source is not None:
        task.init_weights(config, model, writer.source)
    elif writer.run_state.checkpoint is None and any(opened):
        messages += init_embeddings(model, opened, prepared.texts)
    module = model.to(device)
    precision = choose_precision(config.precision, device)
    working: Precision = "bfloat16" if precision == torch.bfloat16 else "float32"
    rates = task.lr_multipliers(config, module)
    state = TrainState(build_parameter_store(module, config, working, ranks, rates), Position())
    writer.restore(state, prepared.fingerprint, prepared.texts)
    compile_layers(module, config, device)
    return messages, state


def _run_loop(
    config: RunConfig, job: TrainingJob, state: TrainState, ranks: ProcessGroup
) -> Iterator[StepRecord | EvaluationRecord]:
    """Train; all ranks see in the same step that it diverges.

    A signal that asks for a stop may end what compiles, too: then the step that waited for it is not taken.
    """
    try:
        with compile_errors(config):
            yield from fit(job, state)
    except CompilerFailure:
        if ranks.world > 1 or job.stop is None or not job.stop():
            raise
        state.weights.zero_grad()
        state.finished = "stopped"
    except DivergedError:
        with ranks.synchronized():
            raise


def _prepare(
    task: Task, config: RunConfig, writer: RunWriter, ranks: ProcessGroup
) -> Generator[StatusEvent | DataCheckEvent | WarningEvent, None, Prepared]:
    """Let rank 0 encode the data while the others wait, then open it everywhere."""
    with ranks.synchronized():
        if writer.is_writer:
            yield from task.prepare(config, writer.folder.data_path, writer.vocabulary_source, writer.origin)
    with ranks.synchronized():
        return task.load_data(config, writer.folder.data_path)


@dataclass(frozen=True)
class TrainingInputs:
    """What a task trains: a model, its data, and how they give a loss."""

    model: Any
    feed: BatchSource
    loss: Callable[[Any], Mapping[str, LossTerm]]


def make_loader(
    config: RunConfig, dataset: Dataset, ranks: ProcessGroup, sampler: Sampler | None = None
) -> BatchLoader:
    """Return the training steps of this rank over a dataset, of which an epoch uses what ``sampler`` gives."""
    return BatchLoader(
        dataset,
        config.seed,
        config.optimization.batch_tokens,
        config.optimization.gradient_accumulation_steps,
        ranks.rank,
        ranks.world,
        sampler,
        uses_fsdp(config, ranks),
    )


def build_training_job(
    config: RunConfig,
    parts: TrainingInputs,
    evaluation: Evaluation,
    ranks: ProcessGroup,
    stop: Callable[[], bool] | None = None,
) -> TrainingJob:
    """Return the training job of a configuration: what the loop needs to know, and no more."""
    return TrainingJob(
        model=cast(torch.nn.Module, parts.model),
        feed=parts.feed,
        loss=parts.loss,
        config=config.training,
        evaluate=run_eager(broadcast_metrics(evaluation, ranks, config.metrics), config),
        seed=config.seed,
        rank=ranks.rank,
        reduce=ranks.reduce if ranks.world > 1 else None,
        stop=stop,
        prefetch=evaluation.device.type == "cuda",
    )
