"""Train word vectors into a run folder: begin or go on, save, finish. Yields what happens. Torch-free."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.engine.stopping import stop_error
from attnkit.errors import UsageError
from attnkit.runtime.processes import release_free_memory, release_library
from attnkit.tasks.word2vec import matrices as mats
from attnkit.tasks.word2vec.checkpoint import State
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.initial import begin_from, refuse_unfit
from attnkit.tasks.word2vec.run_writer import Word2VecRunWriter
from attnkit.tasks.word2vec.text import encoded_text
from attnkit.tasks.word2vec.trainer import Progress, train_slices
from attnkit.tasks.word2vec.workload import Workload, build_workload, refuse_unavailable


@dataclass(frozen=True)
class Word2VecStarted:
    """Training starts or goes on."""

    step: int
    n_words: int
    """Of the vocabulary."""
    n_raw: int
    """Of the text."""
    where: str


@dataclass(frozen=True)
class Word2VecFinished:
    """The run is complete."""

    step: int
    n_words: int
    dim: int
    loss: float | None
    minutes: float
    words_per_second: float
    """Words of the text times epochs, by the time that training took."""
    already: bool = False
    """Nothing was left to do."""


Event = StatusEvent | WarningEvent | Word2VecStarted | Progress | Word2VecFinished


def _never() -> bool:
    return False


def _silent(text: str) -> None:
    pass


@dataclass(frozen=True)
class Word2VecRequest:
    """What to train and where to keep it."""

    config: Word2VecConfig
    path: Path
    overwrite: bool = False
    """Move an old run aside."""
    stop: Callable[[], bool] | None = None
    """Asked between pieces whether to save and end."""
    tell: Callable[[str], None] = _silent
    """Hears how far the encoding of the text is."""


def train(request: Word2VecRequest) -> Generator[Event, None, None]:
    """Train, or go on where an interrupted run of the same configuration stopped.

    Raises:
        UsageError: the folder holds a run of another configuration.
        DataError: the text cannot be trained on.
        StoppedError: a stop was asked for; a checkpoint is saved, by this call or by one before it.
        DivergedError: the loss is no number any more.
    """
    begins_with = request.config.init_from
    if begins_with is not None and Path(begins_with).resolve() == request.path.resolve():
        raise UsageError("a run cannot begin with its own vectors", where="--init-from", help="choose another -o")
    with Word2VecRunWriter(request.path, request.config, request.overwrite, request.stop is not None) as keeper:
        yield from map(WarningEvent, keeper.warnings)
        if keeper.state.finished:
            keeper.finish()
            yield finished(request.config, keeper.state, count_words(keeper), already=True)
        else:
            yield from _go_on(request, keeper)


def _go_on(request: Word2VecRequest, keeper: Word2VecRunWriter) -> Iterator[Event]:
    config, folder = request.config, keeper.folder
    refuse_unavailable(config)
    if keeper.checkpoint is None:
        refuse_unfit(config)
    if not folder.data_path.exists():
        yield StatusEvent("counting and encoding the words")
    encoded = encoded_text(config.data, folder.data_path, request.tell)
    yield from map(WarningEvent, encoded.warnings)
    work = build_workload(config, encoded, folder.data_path, request.tell)
    release_library("libllvmlite")
    known = len(keeper.warnings)
    state = keeper.restore(encoded, config.epochs * work.n_pieces)
    yield from map(WarningEvent, keeper.warnings[known:])
    matrices = mats.empty(work.shapes)
    if keeper.checkpoint is not None:
        mats.fill(matrices, work.shapes, keeper.checkpoint)
    else:
        work.begin(matrices)
        yield from map(StatusEvent, begin_from(config, encoded.words, matrices))
    n_words = len(encoded.words)
    yield Word2VecStarted(state.step, n_words, encoded.n_raw, work.where)
    del encoded  # the words take more memory than all else that is not trained
    release_free_memory()
    yield from _train(request, keeper, work, matrices, n_words)


def _train(
    request: Word2VecRequest, keeper: Word2VecRunWriter, work: Workload, matrices: mats.Matrices, n_words: int
) -> Iterator[Event]:
    config, state, saved = request.config, keeper.state, time.monotonic()
    for progress in train_slices(config, work, matrices, state, request.stop or _never):
        state = progress.state
        for record in progress.records:
            keeper.log(record, 60 * state.minutes)
        if state.finished or time.monotonic() - saved >= 60 * config.save_every:
            keeper.save(matrices, work.shapes, state)
            saved = time.monotonic()
        yield progress
    if not state.finished:
        keeper.save(matrices, work.shapes, state)
        raise stop_error(state.step)
    keeper.finish()
    yield finished(config, state, n_words)


def finished(config: Word2VecConfig, state: State, n_words: int, already: bool = False) -> Word2VecFinished:
    """Return what there is to say of a run that is complete."""
    rate = state.raw * config.epochs / (60 * state.minutes) if state.minutes else 0.0
    return Word2VecFinished(state.step, n_words, config.dim, state.loss, state.minutes, rate, already)


def count_words(keeper: Word2VecRunWriter) -> int:
    """Return how many words have vectors in a finished run."""
    from attnkit.tasks.word2vec.checkpoint import read_words

    assert keeper.checkpoint is not None
    return len(read_words(keeper.checkpoint))
