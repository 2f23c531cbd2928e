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
from attnkit.data.feed import Position
from attnkit.data.permutation import Words
from attnkit.data.prepared_dir import Checked, Stage, Warned
from attnkit.data.rows import RowFeed, Rows
from attnkit.distributed.process_group import Ranks, join_ranks
from attnkit.distributed.processes import release_free_memory
from attnkit.engine.checkpointing import Keeper
from attnkit.engine.compile import CompilerFailure, compile_layers, compiling, uncompiled
from attnkit.engine.parallel import lay_weights, shared_scores, shares_out
from attnkit.engine.pretrained_embeddings import Opened, lay_embeddings, open_embeddings, refuse_beside
from attnkit.engine.registry import KINDS
from attnkit.engine.run_config import RunConfig
from attnkit.engine.stopping import stopped
from attnkit.engine.task import Evaluation, Prepared, Sample, Task, task_of
from attnkit.engine.tensorboard import Board
from attnkit.engine.vocabularies import refuse_two_givers
from attnkit.errors import DivergedError, UsageError
from attnkit.runtime.devices import choose_device, choose_precision, set_threads
from attnkit.training.flat_parameters import Precision
from attnkit.training.loop import EvaluationRecord, Job, StepRecord, fit
from attnkit.training.losses import Term
from attnkit.training.prefetch import Feed
from attnkit.training.state import TrainState

_RELEASE_EVERY = 20  # steps; takes about a millisecond


@dataclass(frozen=True)
class Begun:
    """Training starts or goes on."""

    step: int
    n_parameters: int
    counts: Mapping[str, int]
    device: str
    precision: str
    unit: str = "pairs"
    """What ``counts`` count."""


@dataclass(frozen=True)
class Scored:
    """The development set was scored."""

    record: EvaluationRecord
    samples: list[Sample]


@dataclass(frozen=True)
class Finished:
    """The run is complete."""

    reason: str
    step: int
    best: str
    """The checkpoint that ``translate`` and other commands take."""
    metrics: Mapping[str, float]
    """Its scores on the development set."""
    already: bool = False
    """Nothing was left to do."""


Event = Stage | Warned | Checked | Begun | StepRecord | Scored | Finished


@dataclass(frozen=True)
class Request:
    """What to train and where to keep it."""

    config: RunConfig
    path: Path
    overwrite: bool = False
    """Move an old run aside."""
    init_from: Path | None = None
    """A run whose vocabulary and weights this one begins with."""
    stop: Callable[[], bool] | None = None
    """Asked once a step, and between the batches of an evaluation, whether to save and end."""


def train(request: Request) -> Generator[Event, None, None]:
    """Train, or go on where an interrupted run of the same configuration stopped.

    Raises:
        UsageError: the folder holds a run of another configuration.
        StoppedError: a stop was asked for; a checkpoint is saved, by this call or by one before it.
        DivergedError: ten steps in a row were not finite.
    """
    config = request.config
    task_of(config.task)  # imported before anything is locked, or waited for by other ranks
    refuse_two_givers(config.vocabulary_files, request.init_from)
    refuse_beside(config, request.init_from)
    if request.init_from is not None and request.init_from.resolve() == request.path.resolve():
        raise UsageError("a run cannot begin with its own weights", where="--init-from", help="choose another -o")
    # Vectors that do not fit are refused before anything is made; a run that goes on has them in its weights.
    begins = request.overwrite or not RunFolder(request.path).steps()
    opened = open_embeddings(config) if begins else []
    device = choose_device(config.device)
    set_threads(config.threads)
    with join_ranks(device.type, config.rank_timeout, request.stop) as ranks:
        stops = request.stop is not None
        with Keeper(request.path, config, ranks, request.overwrite, request.init_from, stops) as keeper:
            yield from _go_on(request, keeper, device, ranks, opened)


def _go_on(
    request: Request, keeper: Keeper, device: torch.device, ranks: Ranks, opened: Sequence[Opened | None]
) -> Iterator[Event]:
    yield from map(Warned, keeper.warnings)
    standing = keeper.standing
    if (reason := standing.finished) is not None:
        keeper.settle()
        yield Finished(reason, standing.step, standing.best, standing.best_scores(), already=True)
        return
    with ranks.exchanging():
        yield from _train(request, keeper, device, ranks, opened)


def _train(
    request: Request, keeper: Keeper, device: torch.device, ranks: Ranks, opened: Sequence[Opened | None]
) -> Iterator[Event]:
    config = request.config
    task = task_of(config.task)
    prepared = yield from _prepare(task, config, keeper, ranks)
    known = len(keeper.warnings)
    with ranks.together():
        said, state = _build(task, keeper, device, prepared, opened, ranks)
        board = Board(keeper.folder.path / "tensorboard" if config.tensorboard and keeper.writes else None, state.step)
    model = state.weights.model
    yield from [*said, *map(Warned, keeper.warnings[known:])]
    stop = None if request.stop is None else ranks.asked
    evaluation = task.evaluation(config, prepared, device, stop)
    job = task.job(config, model, prepared, evaluation, ranks, stop)
    yield Begun(
        step=state.step,
        n_parameters=sum(parameter.numel() for parameter in model.parameters()),
        counts=prepared.counts,
        device=device.type,
        precision=str(choose_precision(config.precision, device)).removeprefix("torch."),
        unit=KINDS[config.task].unit,
    )
    with board:
        for record in _fit(config, job, state, ranks):
            keeper.keep(record, state)
            board.add(record)
            if record.step % _RELEASE_EVERY == 0:
                release_free_memory()
            yield Scored(record, evaluation.samples) if isinstance(record, EvaluationRecord) else record
    if state.finished == "stopped":
        keeper.save(state)
        raise stopped(state.step)
    if (n_averaged := keeper.standing.n_averaged()) > 1:
        yield Stage(f"averaging the last {n_averaged} checkpoints")
        scores = uncompiled(shared_scores(evaluation, ranks, config.metrics), config)
        keeper.average(state, lambda shown: _scores_or_stop(scores(shown), state.step))
    keeper.finish(state)
    yield Finished(str(state.finished), state.step, keeper.standing.best, keeper.standing.best_scores())


def _scores_or_stop(scores: Mapping[str, float] | None, step: int) -> Mapping[str, float]:
    """Return the scores. Raises ``StoppedError`` in their place, on every rank, if a stop was asked for meanwhile."""
    if scores is None:
        raise stopped(step)
    return scores


def _build(
    task: Task,
    keeper: Keeper,
    device: torch.device,
    prepared: Prepared,
    opened: Sequence[Opened | None],
    ranks: Ranks,
) -> tuple[list[Stage | Warned], TrainState]:
    """Return the model with all that training changes, as the run's newest checkpoint left it or fresh.

    Before it stands what there is to say of the vectors that a fresh one begins with.
    """
    config = keeper.config
    torch.manual_seed(config.seed)
    model = cast(torch.nn.Module, task.build(config, prepared))
    said: list[Stage | Warned] = []
    if keeper.source is not None:
        task.take(config, model, keeper.source)
    elif keeper.standing.checkpoint is None and any(opened):
        said += lay_embeddings(model, opened, prepared.texts)
    module = model.to(device)
    precision = choose_precision(config.precision, device)
    working: Precision = "bfloat16" if precision == torch.bfloat16 else "float32"
    rates = task.rates(config, module)
    state = TrainState(lay_weights(module, config, working, ranks, rates), Position())
    keeper.restore(state, prepared.fingerprint, prepared.texts)
    compile_layers(module, config, device)
    return said, state


def _fit(config: RunConfig, job: Job, state: TrainState, ranks: Ranks) -> Iterator[StepRecord | EvaluationRecord]:
    """Train; all ranks see in the same step that it diverges.

    A signal that asks for a stop may end what compiles, too: then the step that waited for it is not taken.
    """
    try:
        with compiling(config):
            yield from fit(job, state)
    except CompilerFailure:
        if ranks.world > 1 or job.stop is None or not job.stop():
            raise
        state.weights.clear()
        state.finished = "stopped"
    except DivergedError:
        with ranks.together():
            raise


def _prepare(
    task: Task, config: RunConfig, keeper: Keeper, ranks: Ranks
) -> Generator[Stage | Checked | Warned, None, Prepared]:
    """Let rank 0 encode the data while the others wait, then open it everywhere."""
    with ranks.together():
        if keeper.writes:
            yield from task.prepare(config, keeper.folder.data_path, keeper.giver, keeper.origin)
    with ranks.together():
        return task.open(config, keeper.folder.data_path)


@dataclass(frozen=True)
class Parts:
    """What a task trains: a model, its data, and how they give a loss."""

    model: Any
    feed: Feed
    loss: Callable[[Any], Mapping[str, Term]]


def row_feed(
    config: RunConfig, rows: Rows, ranks: Ranks, examples: Callable[[int, int], Words | None] | None = None
) -> RowFeed:
    """Return the stream of this rank's training steps over rows, of which an epoch may use ``examples`` only."""
    return RowFeed(
        rows,
        config.seed,
        config.optimization.batch_tokens,
        config.optimization.gradient_accumulation_steps,
        ranks.rank,
        ranks.world,
        examples,
        shares_out(config, ranks),
    )


def make_job(
    config: RunConfig, parts: Parts, evaluation: Evaluation, ranks: Ranks, stop: Callable[[], bool] | None = None
) -> Job:
    """Return the training job of a configuration: what the loop needs to know, and no more."""
    return Job(
        model=cast(torch.nn.Module, parts.model),
        feed=parts.feed,
        loss=parts.loss,
        config=config.training,
        evaluate=uncompiled(shared_scores(evaluation, ranks, config.metrics), config),
        seed=config.seed,
        rank=ranks.rank,
        reduce=ranks.reduce if ranks.world > 1 else None,
        stop=stop,
        ahead=evaluation.device.type == "cuda",
    )
