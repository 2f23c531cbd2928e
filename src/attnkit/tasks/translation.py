"""Train a translation model: join data, model, loss, search, metrics and the run folder. Yields what happens."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch

from attnkit.data.feed import PairFeed, Position
from attnkit.data.pairs import PairBatch
from attnkit.errors import DivergedError, StoppedError, UsageError
from attnkit.models.build import build_model
from attnkit.models.translation import TranslationModel
from attnkit.runtime import Ranks, choose_device, choose_precision, join_ranks, release_free_memory, set_threads
from attnkit.tasks.config import TranslationConfig
from attnkit.tasks.evaluate import Evaluation
from attnkit.tasks.keeping import Keeper
from attnkit.tasks.load import given_vocabularies, load_weights, open_checkpoint
from attnkit.tasks.prepare import Checked, Prepared, Stage, Warned, open_prepared, prepare
from attnkit.tasks.tensorboard import Board
from attnkit.training.flat import Precision
from attnkit.training.loop import EvaluationRecord, Job, StepRecord, fit
from attnkit.training.losses import Term, linear_cross_entropy
from attnkit.training.state import TrainState

_RELEASE_EVERY = 20  # steps; takes about a millisecond


@dataclass(frozen=True)
class Begun:
    """Training starts or goes on."""

    step: int
    n_parameters: int
    n_pairs: int
    counts: Mapping[str, int]
    device: str
    precision: str
    minutes: float
    """Spent before, by earlier processes."""


@dataclass(frozen=True)
class Scored:
    """The development set was scored."""

    record: EvaluationRecord
    samples: list[tuple[str, str, str]]


@dataclass(frozen=True)
class Finished:
    """The run is complete."""

    reason: str
    step: int
    best: str
    """The checkpoint that ``translate`` takes."""
    metrics: Mapping[str, float]
    """Its scores on the development set."""
    already: bool = False
    """Nothing was left to do."""


Event = Stage | Warned | Checked | Begun | StepRecord | Scored | Finished


@dataclass(frozen=True)
class Request:
    """What to train and where to keep it."""

    config: TranslationConfig
    path: Path
    overwrite: bool = False
    """Move an old run aside."""
    init_from: Path | None = None
    """A run whose vocabulary and weights this one begins with."""
    stop: Callable[[], bool] | None = None
    """Asked once a step whether to save and end."""


def train(request: Request) -> Iterator[Event]:
    """Train, or go on where an interrupted run of the same configuration stopped.

    Raises:
        UsageError: the folder holds a run of another configuration.
        StoppedError: a stop was asked for; a checkpoint is saved.
        DivergedError: ten steps in a row were not finite.
    """
    config = request.config
    if request.init_from is not None and request.init_from.resolve() == request.path.resolve():
        raise UsageError("a run cannot begin with its own weights", where="--init-from", help="choose another -o")
    device = choose_device(config.device)
    set_threads(config.threads)
    with join_ranks(device.type) as ranks, Keeper(request.path, config, ranks, overwrite=request.overwrite) as keeper:
        yield from map(Warned, keeper.warnings)
        if keeper.finished is not None:
            yield Finished(keeper.finished, keeper.step, keeper.best, keeper.best_scores(), already=True)
            return
        yield from _train(request, keeper, device, ranks)


def _train(request: Request, keeper: Keeper, device: torch.device, ranks: Ranks) -> Iterator[Event]:
    config = request.config
    prepared = yield from _prepare(request, keeper, ranks)
    known = len(keeper.warnings)
    with ranks.together():
        state = _build(request, keeper, device, prepared)
        board = Board(keeper.folder.path / "tensorboard" if config.tensorboard and keeper.writes else None, state.step)
    model = cast(TranslationModel, state.flat.model)
    yield from map(Warned, keeper.warnings[known:])
    evaluation = Evaluation(prepared, config.decoding, device, config.evaluation.samples, config.data.max_length)
    job = make_job(config, model, prepared, evaluation, ranks, request.stop)
    yield Begun(
        step=state.step,
        n_parameters=sum(parameter.numel() for parameter in state.flat.model.parameters()),
        n_pairs=len(prepared.pairs),
        counts=prepared.counts,
        device=device.type,
        precision=str(choose_precision(config.precision, device)).removeprefix("torch."),
        minutes=state.minutes,
    )
    with board:
        for record in _fit(job, state, ranks):
            keeper.keep(record, state)
            board.add(record)
            if record.step % _RELEASE_EVERY == 0:
                release_free_memory()
            yield Scored(record, evaluation.samples) if isinstance(record, EvaluationRecord) else record
    if state.finished == "stopped":
        keeper.save(state)
        raise StoppedError(f"stopped at step {state.step}; everything is saved", help="the same command again goes on")
    if config.checkpoints.average > 1 and (n_averaged := keeper.n_averaged()) > 1:
        yield Stage(f"averaging the last {n_averaged} checkpoints")
        keeper.average(state, lambda: shared_scores(evaluation, ranks)(model))
    keeper.finish(state)
    yield Finished(str(state.finished), state.step, keeper.best, keeper.best_scores())


def _build(request: Request, keeper: Keeper, device: torch.device, prepared: Prepared) -> TrainState:
    """Return the model with all that training changes, as the run's newest checkpoint left it or fresh."""
    config, vocabularies = request.config, prepared.vocabularies
    torch.manual_seed(config.seed)
    model = build_model(config.model, vocabularies.src.vocab_size, vocabularies.tgt.vocab_size)
    if request.init_from is not None and not keeper.step:  # a run that goes on has all in itself
        load_weights(model, open_checkpoint(request.init_from))
    module = cast(torch.nn.Module, model).to(device)
    precision = choose_precision(config.precision, device)
    working: Precision = "bfloat16" if precision == torch.bfloat16 else "float32"
    state = TrainState(module, config.optimization, Position(), working)
    keeper.restore(state, prepared.pairs.fingerprint, vocabularies.files())
    return state


def _fit(job: Job, state: TrainState, ranks: Ranks) -> Iterator[StepRecord | EvaluationRecord]:
    """Train; all ranks see in the same step that it diverges."""
    try:
        yield from fit(job, state)
    except DivergedError:
        with ranks.together():
            raise


def make_job(
    config: TranslationConfig,
    model: TranslationModel,
    prepared: Prepared,
    evaluation: Evaluation,
    ranks: Ranks,
    stop: Callable[[], bool] | None = None,
) -> Job:
    """Return the training job of a configuration: what the loop needs to know, and no more."""
    device = evaluation.device
    smoothing = config.optimization.label_smoothing

    def loss(batch: PairBatch) -> dict[str, Term]:
        batch = batch.to(device)
        hidden = model.hidden(batch.src, batch.src_mask, batch.tgt_in)
        chosen = hidden.flatten(0, 1).index_select(0, batch.positions)
        total, nll = linear_cross_entropy(chosen, model.output.weight, model.output.bias, batch.targets, smoothing)
        return {"nll": Term(total, reported=nll)}

    feed = PairFeed(
        prepared.pairs,
        config.seed,
        config.optimization.max_tokens,
        config.optimization.accumulate,
        ranks.rank,
        ranks.world,
        config.data.weights,
    )
    return Job(
        model=cast(torch.nn.Module, model),
        feed=feed,
        loss=loss,
        config=config.training,
        evaluate=shared_scores(evaluation, ranks),  # type: ignore[arg-type]
        seed=config.seed,
        rank=ranks.rank,
        reduce=ranks.reduce if ranks.world > 1 else None,
        stop=stop,
    )


def shared_scores(evaluation: Evaluation, ranks: Ranks) -> Callable[[TranslationModel], Mapping[str, float]]:
    """Let rank 0 score and tell the others: one answer, whatever machine they run on."""
    names = ("loss", "perplexity", "bleu", "chrf")

    def scores(model: TranslationModel) -> Mapping[str, float]:
        found = dict.fromkeys(names, 0.0)
        with ranks.together():
            if ranks.rank == 0:
                found = evaluation(model)
        values = torch.tensor([found[name] for name in names], dtype=torch.float64, device=evaluation.device)
        ranks.reduce(values)
        return dict(zip(names, values.tolist(), strict=True))

    return scores


def _prepare(request: Request, keeper: Keeper, ranks: Ranks) -> Generator[Stage | Checked | Warned, None, Prepared]:
    """Let rank 0 encode the text while the others wait, then open it everywhere."""
    with ranks.together():
        if keeper.writes:
            given = partial(given_vocabularies, request.config, request.init_from)
            yield from prepare(request.config, keeper.folder.data_path, given)
    with ranks.together():
        return open_prepared(keeper.folder.data_path)
