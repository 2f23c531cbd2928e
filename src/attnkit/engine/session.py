"""Interface of training sessions between trainer and run folder. Torch-free."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from attnkit.checkpoints.checkpoint import Checkpoint, Content
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.checkpointing import RunWriter
from attnkit.engine.events import Event, PrepareEvent
from attnkit.engine.run_state import RunState


# Two implementations: GradientSession and the session of word2vec.
class TrainingSession(ABC):
    """Training session of one run, created before the run folder is locked.

    The constructor rejects invalid requests before anything is written. The methods are called in this order: join,
    prepare, setup, started, records, finalize, outcome, close.
    """

    state: Any
    """State of the loop, set by ``setup``; ``step`` is the number of steps and ``finished`` the reason why training
    ended ("stopped" after a stop request, None during training)."""

    @property
    def step(self) -> int:
        """Number of steps taken."""
        return int(self.state.step)

    def join(self) -> ProcessGroup:
        """Return the process group; by default, only this process."""
        return ProcessGroup()

    @abstractmethod
    def prepare(self, writer: RunWriter) -> Iterator[PrepareEvent]:
        """Encode the text into RUN/data, unless that is done. Called only on rank 0."""

    @abstractmethod
    def setup(self, writer: RunWriter) -> list[PrepareEvent]:
        """Load data, build the model, call ``RunWriter.restore``. Called on all ranks."""

    @abstractmethod
    def started(self) -> Event:
        """Return the event that reports the start of training."""

    @abstractmethod
    def records(self) -> Iterator[Any]:
        """Return the training loop; the state may be saved at each of its records."""

    def step_errors(self) -> AbstractContextManager[None]:
        """Return a context for computing a record, which converts library errors."""
        return nullcontext()

    @abstractmethod
    def log_and_save(self, record: Any, writer: RunWriter) -> None:
        """Log a record, and save a checkpoint if one is due."""

    def event(self, record: Any) -> Event:
        """Return the event for a record."""
        return record

    def finalize(self, writer: RunWriter) -> Iterator[Event]:
        """Do final work after the last step; not called after a stop request."""
        return iter(())

    @abstractmethod
    def outcome(self, state: RunState, already: bool) -> Event:
        """Return the event that reports the end of the run."""

    @abstractmethod
    def close(self) -> None:
        """Release files and threads."""

    # State that is saved to and restored from checkpoints.
    @abstractmethod
    def counters(self) -> dict[str, Any]:
        """Return the state except tensors, as JSON-serializable values."""

    @abstractmethod
    def snapshot(self) -> Callable[[], Mapping[str, Content]]:
        """Return a function that serializes tensors; called on all ranks, run on one."""

    @abstractmethod
    def restore(self, checkpoint: Checkpoint, counters: Mapping[str, Any]) -> None:
        """Restore the state from a checkpoint."""

    @abstractmethod
    def model_card(self, state: RunState, counters: Mapping[str, Any]) -> str:
        """Return the model card (README.md) of the finished run."""
