"""Interface of a training session: what a task computes between the trainer and the run folder. Torch-free."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from attnkit.checkpoints.checkpoint import Checkpoint, Content
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.checkpointing import RunWriter
from attnkit.engine.events import Event, PrepareEvent
from attnkit.engine.run_state import RunState


# Two implementations: GradientSession, and word2vec's.
class TrainingSession(ABC):
    """The training session of one run. It is created before the run folder is locked.

    The constructor refuses what cannot be trained, so that nothing has been written by then. The methods are called in
    this order: join, prepare, setup, started, records, finalize, outcome, close.
    """

    state: Any
    """State of the loop, set by ``setup``: its ``step``, and as ``finished`` why training ended ("stopped" for a
    requested stop; None while it runs)."""

    @property
    def step(self) -> int:
        """Steps taken."""
        return int(self.state.step)

    def join(self) -> ProcessGroup:
        """Return the process group; by default of this process alone."""
        return ProcessGroup()

    @abstractmethod
    def prepare(self, writer: RunWriter) -> Iterator[PrepareEvent]:
        """Encode the text into RUN/data, unless that is done. Called on rank 0 alone."""

    @abstractmethod
    def setup(self, writer: RunWriter) -> list[PrepareEvent]:
        """Load the data, build what is trained, and restore it with ``RunWriter.restore``. Called on all ranks."""

    @abstractmethod
    def started(self) -> Event:
        """Return the event that training starts."""

    @abstractmethod
    def records(self) -> Iterator[Any]:
        """Return the training loop. At each record the state is consistent: it may be saved, or the run stopped."""

    def step_errors(self) -> AbstractContextManager[None]:
        """Return the context in which the loop computes a record; it turns errors of libraries into ours."""
        return nullcontext()

    @abstractmethod
    def log_and_save(self, record: Any, writer: RunWriter) -> None:
        """Log a record, and save a checkpoint if one is due."""

    def event(self, record: Any) -> Event:
        """Return the event of a record."""
        return record

    def finalize(self, writer: RunWriter) -> Iterator[Event]:
        """Do what remains after the last step, but not after a requested stop."""
        return iter(())

    @abstractmethod
    def outcome(self, state: RunState, already: bool) -> Event:
        """Return the event that the run is complete."""

    @abstractmethod
    def close(self) -> None:
        """Release files and threads."""

    # State, as it goes into a checkpoint and comes back.
    @abstractmethod
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
