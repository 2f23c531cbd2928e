"""A training run in memory: what the trainer drives and the run folder stores, its events, its stops. Torch-free."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from attnkit.checkpoints.checkpoint import Checkpoint, Content
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.torchrun import launch_facts
from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.run_config import RunSettings
from attnkit.engine.run_state import RunState
from attnkit.errors import StoppedError, exit_code


def stop_error(step: int) -> StoppedError:
    """Return the error of a requested stop after a saved checkpoint."""
    return StoppedError(f"stopped at step {step}; everything is saved", help="run the same command again to resume")


def is_launched_by_torchrun(world: int) -> bool:
    """Return whether this process is one of several ranks or was started by torchrun."""
    # One rank under torchrun counts: torchrun would restart it, too.
    return world > 1 or bool(launch_facts())


def signal_to_stop(error: BaseException | None, step: int, world: int) -> StoppedError | None:
    """Return the requested stop of a signal's exception, or None.

    A signal is a requested stop if ``step`` is saved. Under a launcher it always is: torchrun restarts processes that a
    signal ended.
    """
    # SIGINT and SIGTERM, as shells number them.
    if exit_code(error) not in (130, 143):
        return None
    # Something is saved: the run can be resumed.
    if step:
        return stop_error(step)
    # Ends with 0, or torchrun would start all processes again.
    if is_launched_by_torchrun(world):
        return StoppedError("stopped before anything was saved", help="run the same command again to start over")
    return None


# Events: what a run reports while it is prepared and trained.
PrepareEvent = StatusEvent | DataCheckEvent | WarningEvent
Sample = tuple[str, str, str]
"""Input, reference and prediction."""


def _ignore(text: str) -> None:
    pass


@dataclass(frozen=True)
class TrainRequest:
    """What to train, and the folder that keeps it."""

    config: RunSettings
    path: Path
    overwrite: bool = False  # with a fresh start
    """Move an old run aside."""
    init_from: Path | None = None
    """A run that provides the vocabulary and the initial weights."""
    # Ways to stop and to report.
    stop: Callable[[], bool] | None = None
    """Polled once per step, and between the batches of an evaluation: whether to save and end."""
    report_progress: Callable[[str], None] = _ignore
    """Receives short-lived messages while text is encoded."""


@dataclass(frozen=True)
class TrainingStarted:
    """Training starts or resumes."""

    step: int
    n_parameters: int
    counts: Mapping[str, int]
    device: str
    precision: str
    unit: str = "pairs"
    """Plural noun of what ``counts`` count."""


@dataclass(frozen=True)
class TrainingProgress:
    """Steps of a loop without a development set are done."""

    step: int
    done: float
    """Share of the run, from 0 to 1."""
    loss: float
    learning_rate: float
    speed: float
    """Units per second."""
    seconds_left: float
    unit: str
    """Plural noun of what ``speed`` counts."""


@dataclass(frozen=True)
class Validated:
    """The development set was scored."""

    record: Any
    """The ``EvaluationRecord`` of the training loop."""
    samples: list[Sample]


@dataclass(frozen=True)
class TrainingFinished:
    """The run is complete."""

    reason: str
    step: int
    best: str
    """The checkpoint that ``translate`` and other commands load."""
    metrics: Mapping[str, float]
    """Its scores on the development set; of a run without one, the figures of its training."""
    already: bool = False
    """Whether the run was complete before."""


Event = Any
"""``StatusEvent``, ``WarningEvent``, ``DataCheckEvent``, ``TrainingStarted``, ``TrainingProgress``, ``StepRecord``,
``Validated`` or ``TrainingFinished``."""


# The folder, as far as a session needs it: no more than these methods.
class RunFiles(Protocol):
    """The run folder as a session sees it; ``checkpointing.RunWriter`` implements it."""

    # Where it is, what it holds, and where initial weights come from.
    folder: RunFolder
    run_state: RunState
    source: Checkpoint | None
    """Checkpoint of ``--init-from``, for a new run."""
    origin: str | None
    """Fingerprint of the initial weights; "" for random ones, None if unknown."""

    @property
    def is_writer(self) -> bool:
        """Whether this rank writes the folder."""
        ...

    def vocabulary_source(self) -> Checkpoint | None:
        """Return the checkpoint that provides the vocabularies; None if they are still to be trained."""
        ...

    # Writing. A fingerprint ties a checkpoint to the data it was trained on.
    def restore(self, fingerprint: str, texts: Mapping[str, bytes]) -> None:
        """Restore the fresh session from the newest checkpoint, if any."""
        ...

    def save(self) -> None:
        """Write a checkpoint and apply retention; called on all ranks."""
        ...

    def write(self, snapshot: Callable[[], Mapping[str, Content]]) -> None:
        """Write a checkpoint of ``TrainingSession.snapshot``; called on rank 0 alone."""
        ...

    def write_averaged(self, stored: Mapping[str, Any], contents: Mapping[str, Content]) -> None:
        """Write the averaged checkpoint; called on rank 0 alone."""
        ...


# Two implementations: GradientSession, and word2vec's.
class TrainingSession(ABC):
    """What is trained in one run: created before the run folder is locked, then set up, driven and saved.

    The constructor refuses what cannot be trained, so that nothing has been written by then.
    """

    @property
    @abstractmethod
    def step(self) -> int:
        """Steps taken."""

    @property
    @abstractmethod
    def finished(self) -> str | None:
        """Why training ended, "stopped" for a requested stop; None while it runs."""

    # Called in this order: join, prepare, setup, started, records, finalize, outcome, close.
    def join(self) -> ProcessGroup:
        """Return the process group; by default of this process alone."""
        return ProcessGroup()

    @abstractmethod
    def prepare(self, writer: RunFiles) -> Iterator[PrepareEvent]:
        """Encode the text into RUN/data, unless that is done. Called on rank 0 alone."""

    @abstractmethod
    def setup(self, writer: RunFiles) -> list[PrepareEvent]:
        """Load the data, build what is trained, and restore it with ``RunWriter.restore``. Called on all ranks."""

    @abstractmethod
    def started(self) -> Event:
        """Return the event that training starts."""

    @abstractmethod
    def records(self) -> Iterator[Any]:
        """Return the training loop. At each record the state is consistent: it may be saved, or the run stopped."""

    # Around each step, so that errors of libraries become ours.
    def step_errors(self) -> AbstractContextManager[None]:
        """Return the context in which the loop computes a record."""
        return nullcontext()

    @abstractmethod
    def log_and_save(self, record: Any, writer: RunFiles) -> None:
        """Log a record, and save a checkpoint if one is due."""

    def event(self, record: Any) -> Event:
        """Return the event of a record."""
        return record

    # Only after the last step, not after a requested stop.
    def finalize(self, writer: RunFiles) -> Iterator[Event]:
        """Do what remains after the last step."""
        return iter(())

    @abstractmethod
    def outcome(self, state: RunState, already: bool) -> Event:
        """Return the event that the run is complete."""

    @abstractmethod
    def close(self) -> None:
        """Release files and threads."""

    @abstractmethod
    # State, as it goes into a checkpoint and comes back.
    def counters(self) -> dict[str, Any]:
        """Return the state besides tensors, ready for JSON."""

    @abstractmethod
    def snapshot(self) -> Callable[[], Mapping[str, Content]]:
        """Return a function that serializes the tensors as files of a checkpoint; called on all ranks, run on one."""

    @abstractmethod
    def restore(self, checkpoint: Checkpoint, counters: Mapping[str, Any]) -> None:
        """Set the state to that of a checkpoint."""

    @abstractmethod
    def model_card(self, state: RunState, counters: Mapping[str, Any]) -> str:
        """Return the README.md of the finished run."""
