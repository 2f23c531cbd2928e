"""Interface of tasks, which share the code of the engine. Torch-free.

The trainer handles the lock, checkpoints, resuming, stop requests, ranks, status and the model card. A task provides a
``TrainingSession`` or, if trained by gradients, the parts of a ``GradientSession``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.engine.checkpoint_metadata import read_averaged, read_state
from attnkit.engine.events import PrepareEvents, Sample, TrainRequest
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.registry import load_symbol, task_spec
from attnkit.engine.run_config import RunConfig, RunSettings
from attnkit.engine.session import TrainingSession

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from attnkit.data.loader import Dataset, DatasetSchedule, Sampler
    from attnkit.training.losses import LossTerm

    Lengths = NDArray[np.int32]

# Types shared by tasks and the engine.
Stop = Callable[[], bool]  #: returns whether a stop was requested
_T = TypeVar("_T")


class EvaluationCancelled(Exception):
    """Evaluation cancelled by a stop request; it left the model unchanged."""


def until_stopped(stop: Stop | None, items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items. Raises ``EvaluationCancelled`` once ``stop`` returns True."""
    for item in items:
        if stop is not None and stop():
            raise EvaluationCancelled
        yield item


class Prepared(Protocol):
    """Protocol of prepared training data."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of examples, for messages."""

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the training data."""

    @property
    def texts(self) -> Mapping[str, bytes]:
        """Vocabulary and label files of a checkpoint: name in ``TEXT_FILES`` -> content."""


class Evaluation(Protocol):
    """Protocol of an evaluation on the development set."""

    @property
    def device(self) -> torch.device:
        """Device of the computation."""

    @property
    def samples(self) -> list[Sample]:
        """Sample predictions of the last evaluation."""

    def __call__(self, model: Any, /) -> Mapping[str, float]:
        """Return the metrics by name. Raises ``EvaluationCancelled`` on a stop request."""


LossFunction = Callable[[Any], Mapping[str, "LossTerm"]]  #: maps a batch of the task's dataset to its loss terms
# Each task binds the types of its configuration, data and model, so that mypy checks every method.
ConfigT = TypeVar("ConfigT", bound=RunSettings)
DataT = TypeVar("DataT", bound=Prepared)
ModelT = TypeVar("ModelT")


@dataclass(frozen=True)
class RunEstimate:
    """Estimates for a training run."""

    n_examples: int
    n_parameters: int
    tokens_per_epoch: int  #: source and target tokens, estimated from the first lines of each file
    steps_per_epoch: int
    memory: int  #: estimated peak memory, in bytes
    device: str
    precision: str
    unit: str = "pairs"  #: plural noun of the examples, for messages
    disk: int | None = None  #: bytes of the encoded text and the checkpoints
    seconds: float | None = None  #: estimated time of the whole training; None if unknown
    note: str = ""  #: further information, as a sentence
    memory_parts: Mapping[str, int] = field(default_factory=dict)
    """Bytes of weights, gradients, optimizer, activations, logits, a checkpoint while it is written, and the process
    itself; empty for word vectors."""


@dataclass(frozen=True)
class CorpusSize:
    """Size of a training corpus, estimated from a sample of its text."""

    n_examples: int
    tokens: float  #: per epoch, special tokens included
    vocab_sizes: tuple[int, ...]  #: of source and target, or of the only vocabulary
    lengths: tuple[Lengths, ...]
    """Tokens of each sampled example, without special tokens: of source and target, or of documents."""
    note: str = ""  #: further information, as a sentence


@dataclass(frozen=True)
class TrainingOutcome:
    """Development scores of a run that has ended."""

    scores: Mapping[str, float]  #: of the best checkpoint
    losses: Sequence[float]  #: of all evaluations, in order
    n_steps: int
    initialized: bool  #: whether another run provided the initial weights


class Task(ABC, Generic[ConfigT, DataT, ModelT]):
    """Interface of a task; the engine implements everything else.

    Every task has the first four methods. The others are the parts of a ``GradientSession``; a task with its own
    session does not implement them.
    """

    # Methods of every task.
    @abstractmethod
    def dry_run(self, config: ConfigT, init_from: Path | None = None) -> RunEstimate | None:
        """Estimate a run without training; None if the input can be read only once."""

    # Parts of ``dry_run``, for tasks that ``attnkit plan`` supports.
    def corpus_size(self, config: ConfigT, init_from: Path | None = None) -> CorpusSize:
        """Estimate the size of the corpus from samples of its files."""
        raise NotImplementedError

    def sized_model(self, config: ConfigT, vocab_sizes: Sequence[int]) -> ModelT:
        """Build a model with random weights for vocabularies of these sizes."""
        raise NotImplementedError

    def random_dataset(self, config: ConfigT, corpus: CorpusSize, folder: Path) -> Dataset:
        """Write random ids in rows as long as those of a corpus; open them for training."""
        raise NotImplementedError

    @abstractmethod
    def check_compatible(self, checkpoint: Checkpoint, config: ConfigT) -> None:
        """Raise ``RunError`` if a checkpoint's weights do not fit the model."""

    def find_errors(self, checkpoint: Checkpoint, config: ConfigT) -> Iterator[str]:
        """Yield errors in the contents of a checkpoint; raise ``RunError`` for fatal ones."""
        import torch

        from attnkit.checkpoints.checkpoint import MODEL
        from attnkit.checkpoints.weights import OPTIMIZER, held_weights, read_tensors, tensors_of
        from attnkit.models.hidden_matrices import hidden_matrices

        model = self.model_for_checkpoint(checkpoint, config)
        self.freeze(config, model)
        expected = tensors_of(cast(torch.nn.Module, model))
        read_tensors(checkpoint, MODEL, expected)
        if checkpoint.name == "averaged":
            read_averaged(checkpoint)
            return
        read_state(checkpoint)
        if checkpoint.step == 0 and OPTIMIZER not in checkpoint.manifest.files:
            return  # an imported run that has not been trained yet
        # Buffers have no optimizer moments.
        weights = {name: tensor for name, tensor in expected.items() if isinstance(tensor, torch.nn.Parameter)}
        parameters = held_weights(checkpoint, weights)[1]
        trained = {name: tensor for name, tensor in parameters.items() if tensor.requires_grad}
        settings = cast(RunConfig, config).optimization
        muon = hidden_matrices(cast(torch.nn.Module, model)) if settings.optimizer == "muon" else {}
        buffers = {f"exp_avg.{name}": tensor for name, tensor in trained.items()}
        # Muon's matrices have no second moment.
        buffers |= {f"exp_avg_sq.{name}": tensor for name, tensor in trained.items() if name not in muon}
        if settings.ema_decay is not None:
            buffers |= {f"weights.{name}": tensor for name, tensor in parameters.items()}
        for name, tensor in read_tensors(checkpoint, OPTIMIZER, buffers).items():
            if not bool(torch.isfinite(tensor).all()):
                yield f"{OPTIMIZER} of checkpoint {checkpoint.name} cannot be used: '{name}' is not finite"
                return

    # Either a session of the task's own, or the parts below.
    def session(self, request: TrainRequest) -> TrainingSession | None:
        """Return the task's own session or None. Raises ``UsageError`` if misconfigured."""
        return None

    def prepare(self, config: ConfigT, folder: Path, source: Checkpoint | None, origin: str | None) -> PrepareEvents:
        """Encode the text into RUN/data (``folder``), unless that is done.

        The checkpoint ``source`` provides vocabularies and labels; None if they must still be built. ``origin`` is the
        fingerprint of the initial weights.
        """
        raise NotImplementedError

    def load_data(self, config: ConfigT, folder: Path) -> DataT:
        """Open the data that ``prepare`` wrote."""
        raise NotImplementedError

    def build_model(self, config: ConfigT, data: DataT) -> ModelT:
        """Build a model with random weights; torch is already seeded."""
        raise NotImplementedError

    # Training.
    def dataset(self, data: DataT) -> Dataset:
        """Return the training examples; by default ``data.train``."""
        return cast("Dataset", cast(Any, data).train)

    def sampler(self, config: ConfigT, data: DataT) -> Sampler | None:
        """Return the sampler of an epoch's examples; None: every example once."""
        return None

    def dataset_schedule(self, config: ConfigT, data: DataT) -> DatasetSchedule | None:
        """Return the dataset by progress of the run; None: always ``dataset``."""
        return None

    # Built once per run; the returned function closes over model and device.
    def loss(self, config: ConfigT, model: ModelT, data: DataT, device: torch.device) -> LossFunction:
        """Return the training loss function."""
        raise NotImplementedError

    def evaluation(self, config: ConfigT, data: DataT, device: torch.device, stop: Stop | None) -> Evaluation:
        """Return the evaluation on the development set."""
        raise NotImplementedError

    def outcome_warnings(self, config: ConfigT, data: DataT, outcome: TrainingOutcome) -> Iterator[str]:
        """Yield warnings about the development scores of a run that has ended."""
        yield from ()

    def complete(self, config: ConfigT, data: DataT, run: Path, stop: Stop | None) -> PrepareEvents:
        """Add to the folder of a run what its best checkpoint is needed for.

        Called on rank 0 after the last step. Raises ``EvaluationCancelled`` on a stop request.
        """
        yield from ()

    def is_complete(self, config: ConfigT, run: Path) -> bool:
        """Return whether a run that took its last step has what ``complete`` adds."""
        return True

    # Checkpoints.
    def model_for_checkpoint(self, checkpoint: Checkpoint, config: ConfigT) -> ModelT:
        """Check compatibility, then build a model for the weights of a checkpoint."""
        raise NotImplementedError

    def init_weights(self, config: ConfigT, model: ModelT, source: Checkpoint, data: DataT) -> None:
        """Copy initial weights from a run of this task or of ``init_from_tasks``.

        ``data`` are those of the new run, whose vocabulary may have more entries.
        """
        from attnkit.checkpoints.weights import load_weights  # imports torch

        load_weights(cast("torch.nn.Module", model), source)

    # Optional parts.
    def freeze(self, config: ConfigT, model: ModelT) -> None:
        """Exclude parameters from training by ``requires_grad``; by default none."""

    def lr_multipliers(self, config: ConfigT, model: ModelT) -> Mapping[str, float]:
        """Return learning-rate multipliers other than 1, by parameter name."""
        return {}

    # Description.
    def model_card(self, config: ConfigT, name: str) -> ModelCardFields:
        """Return the task-dependent fields of the model card of the run ``name``."""
        raise NotImplementedError


AnyTask = Task[Any, Any, Any]


def task_of(config: RunSettings) -> AnyTask:
    """Return the task of a configuration; import its module on first use."""
    return cast(AnyTask, load_symbol(task_spec(config.task, config.model_kind).task_path))
