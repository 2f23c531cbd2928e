"""The training driver of every task: prepare data, restore, train, validate, save, finish.

A ``Task`` provides data, model, loss and evaluation; the loop itself is ``training.loop.fit``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.loader import Position
from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.distributed.process_group import ProcessGroup, join_process_group
from attnkit.engine.checkpointing import RunWriter
from attnkit.engine.compile import CompilerFailure, compile_errors, compile_layers, run_eager
from attnkit.engine.job import build_job
from attnkit.engine.parallel import broadcast_metrics, build_parameter_store
from attnkit.engine.pretrained_embeddings import (
    EmbeddingSource,
    check_embeddings_conflict,
    init_embeddings,
    open_embeddings,
)
from attnkit.engine.registry import TASKS
from attnkit.engine.run_config import RunConfig
from attnkit.engine.stopping import stop_error
from attnkit.engine.task import AnyTask, Prepared, Sample, task_of
from attnkit.engine.tensorboard import TensorBoardLogger
from attnkit.engine.vocabularies import check_init_conflicts
from attnkit.errors import DivergedError, UsageError
from attnkit.runtime.devices import choose_device, choose_precision, set_threads
from attnkit.runtime.processes import release_free_memory
from attnkit.training.flat_parameters import Precision
from attnkit.training.loop import EvaluationRecord, StepRecord, TrainingJob, fit
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
    """Train, or resume an interrupted run of the same configuration. Yields what happens.

    Raises:
        UsageError: the folder holds a run of another configuration.
        StoppedError: a stop was requested; a checkpoint is saved, by this call or an earlier one.
        DivergedError: ten steps in a row were not finite.
    """
    config = request.config
    task = task_of(config.task)  # imported before anything is locked, or waited for by other ranks
    check_init_conflicts(config.vocabulary_files, request.init_from)
    check_embeddings_conflict(config, request.init_from)
    if request.init_from is not None and request.init_from.resolve() == request.path.resolve():
        raise UsageError("a run cannot be initialized from itself", where="--init-from", help="choose another -o")
    # Vectors that do not fit are refused before anything is written; a resumed run has them in its weights.
    is_new = request.overwrite or not RunFolder(request.path).steps()
    embeddings = open_embeddings(config) if is_new else []
    device = choose_device(config.device)
    set_threads(config.threads)
    handles_signals = request.stop is not None
    with (
        join_process_group(device.type, config.rank_timeout, request.stop) as ranks,
        RunWriter(request.path, config, ranks, request.overwrite, request.init_from, handles_signals) as writer,
    ):
        yield from map(WarningEvent, writer.warnings)
        n_warnings = len(writer.warnings)
        run_state = writer.run_state
        if (reason := run_state.finished) is not None:
            writer.repair_finished()
            yield TrainingFinished(reason, run_state.step, run_state.best, run_state.best_scores(), already=True)
            return
        with ranks.guard_collectives():
            # Data: rank 0 encodes the text while the others wait, then every rank maps it.
            with ranks.synchronized():
                if writer.is_writer:
                    yield from task.prepare(config, writer.folder.data_path, writer.vocabulary_source, writer.origin)
            with ranks.synchronized():
                data: Prepared = task.load_data(config, writer.folder.data_path)
            # Model and optimizer: fresh, from another run, or as the newest checkpoint has them.
            with ranks.synchronized():
                messages, state = _initial_state(task, writer, device, data, embeddings)
                folder = writer.folder.path / "tensorboard" if config.tensorboard and writer.is_writer else None
                board = TensorBoardLogger(folder, state.step)
            yield from [*messages, *map(WarningEvent, writer.warnings[n_warnings:])]
            stop = None if request.stop is None else ranks.stop_requested
            evaluation = task.evaluation(config, data, device, stop)
            job = build_job(task, config, state.weights.model, data, evaluation, ranks, stop)
            yield _started(config, state, data, device)
            # The loop; a record is saved before it is yielded, so that the caller may stop at any of them.
            records = fit(job, state)
            with board:
                while True:
                    record = None
                    with _loop_errors(config, job, state, ranks):
                        # The loop computes inside next(): errors surface here, not where the record is used.
                        record = next(records, None)
                    if record is None:
                        break
                    writer.log_and_save(record, state)
                    board.add(record)
                    if record.step % _RELEASE_EVERY == 0:
                        release_free_memory()
                    yield Validated(record, evaluation.samples) if isinstance(record, EvaluationRecord) else record
            if state.finished == "stopped":
                writer.save(state)
                raise stop_error(state.step)
            if (n_averaged := run_state.n_averaged()) > 1:
                yield StatusEvent(f"averaging the last {n_averaged} checkpoints")
                scores = run_eager(broadcast_metrics(evaluation, ranks, config.metrics), config)
                writer.average(state, lambda model: _scores_or_stop(scores(model), state.step))
            writer.finish(state)
            yield TrainingFinished(str(state.finished), state.step, run_state.best, run_state.best_scores())


def _initial_state(
    task: AnyTask,
    writer: RunWriter,
    device: torch.device,
    data: Prepared,
    embeddings: Sequence[EmbeddingSource | None],
) -> tuple[list[StatusEvent | WarningEvent], TrainState]:
    """Return the state that training starts from, and messages about pretrained embeddings."""
    config = writer.config
    # The same on all ranks: each builds the same initial weights, so none is sent.
    torch.manual_seed(config.seed)
    model: torch.nn.Module = task.build_model(config, data)
    messages: list[StatusEvent | WarningEvent] = []
    if writer.source is not None:
        task.init_weights(config, model, writer.source)
    elif writer.run_state.checkpoint is None and any(embeddings):
        messages += init_embeddings(model, embeddings, data.texts)
    # Before the flat buffers: parameters must not move once they are views.
    module = model.to(device)
    precision = choose_precision(config.precision, device)
    working: Precision = "bfloat16" if precision == torch.bfloat16 else "float32"
    multipliers = task.lr_multipliers(config, module)
    state = TrainState(build_parameter_store(module, config, working, writer.ranks, multipliers), Position())
    # Before compiling: compiled layers hold on to the parameters.
    writer.restore(state, data.fingerprint, data.texts)
    compile_layers(module, config, device)
    return messages, state


def _started(config: RunConfig, state: TrainState, data: Prepared, device: torch.device) -> TrainingStarted:
    return TrainingStarted(
        step=state.step,
        n_parameters=sum(parameter.numel() for parameter in state.weights.model.parameters()),
        counts=data.counts,
        device=device.type,
        precision=str(choose_precision(config.precision, device)).removeprefix("torch."),
        unit=TASKS[config.task].unit,
    )


@contextmanager
def _loop_errors(config: RunConfig, job: TrainingJob, state: TrainState, ranks: ProcessGroup) -> Iterator[None]:
    """Let all ranks see divergence in the same step, and a stop that ended torch's compiler as a stop.

    The step that waited for the compiler is not taken then.
    """
    try:
        with compile_errors(config):
            yield
    except CompilerFailure:
        # With several ranks the others wait in a collective: only a failure ends them.
        if ranks.world > 1 or job.stop is None or not job.stop():
            raise
        state.weights.zero_grad()
        state.finished = "stopped"
    except DivergedError:
        with ranks.synchronized():
            raise


def _scores_or_stop(scores: Mapping[str, float] | None, step: int) -> Mapping[str, float]:
    """Return the scores. Raises ``StoppedError`` on every rank if a stop was requested meanwhile."""
    if scores is None:
        raise stop_error(step)
    return scores
