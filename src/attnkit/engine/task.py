"""Interface of a task; all tasks share the code of the engine. Torch-free.

The trainer handles the lock, checkpoints, resuming, stop requests, ranks, status and the model card. A task provides a
``TrainingSession``, or, trained by gradients, the parts of a ``GradientSession``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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
    import torch

    from attnkit.data.loader import Dataset, Sampler
    from attnkit.training.losses import LossTerm

# Types that tasks and the engine exchange.
Stop = Callable[[], bool]  #: says whether a stop was asked for
_T = TypeVar("_T")


class EvaluationCancelled(Exception):
    """A stop was requested during an evaluation, which changed nothing: the same model can be scored again."""


def until_stopped(stop: Stop | None, items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items, asking before each. Raises ``EvaluationCancelled`` at a yes."""
    for item in items:
        if stop is not None and stop():
            raise EvaluationCancelled
        yield item


class Prepared(Protocol):
    """Prepared training data, opened."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of examples, for messages."""

    @property
    def fingerprint(self) -> str:
        """Changes with anything that is trained on."""

    @property
    def texts(self) -> Mapping[str, bytes]:
        """Text files of a checkpoint by their names (``checkpoint_metadata.TEXT_FILES``): vocabularies, labels."""


class Evaluation(Protocol):
    """The development set."""

    @property
    def device(self) -> torch.device:
        """Return the device of the computation."""

    @property
    def samples(self) -> list[Sample]:
        """A few of the last time."""

    def __call__(self, model: Any, /) -> Mapping[str, float]:
        """Return the metrics of the configuration by name. Raises ``EvaluationCancelled`` if a stop was asked for."""


LossFunction = Callable[[Any], Mapping[str, "LossTerm"]]  #: from a batch of the task's dataset to its loss terms
# Each task fixes its configuration, its data and its model: mypy then checks every method.
ConfigT = TypeVar("ConfigT", bound=RunSettings)
DataT = TypeVar("DataT", bound=Prepared)
ModelT = TypeVar("ModelT")


@dataclass(frozen=True)
class RunEstimate:
    """Estimated figures of a training run."""

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
    note: str = ""  #: sentence on what else is known


class Task(ABC, Generic[ConfigT, DataT, ModelT]):
    """Interface of a task; the engine implements everything else.

    Every task has the first four methods. The others are the parts of a ``GradientSession``; a task with a session of
    its own has none of them.
    """

    # What every task answers.
    @abstractmethod
    def dry_run(self, config: ConfigT, init_from: Path | None = None) -> RunEstimate | None:
        """Estimate a run without training; None for input that can be read only once."""

    @abstractmethod
    def check_compatible(self, checkpoint: Checkpoint, config: ConfigT) -> None:
        """Raise ``RunError`` where a checkpoint's weights cannot be those of the model."""

    def find_errors(self, checkpoint: Checkpoint, config: ConfigT) -> Iterator[str]:
        """Yield why a checkpoint of intact files cannot be used; ``RunError`` for an error that ends the search."""
        import torch

        from attnkit.checkpoints.weights import MODEL, OPTIMIZER, read_tensors, tensors_of

        expected = tensors_of(cast(torch.nn.Module, self.model_for_checkpoint(checkpoint, config)))
        read_tensors(checkpoint, MODEL, expected)
        if checkpoint.name == "averaged":
            read_averaged(checkpoint)
            return
        read_state(checkpoint)
        if checkpoint.step == 0 and OPTIMIZER not in checkpoint.manifest.files:
            return  # an imported run, not trained yet
        # Buffers have no moments.
        trained = {name: tensor for name, tensor in expected.items() if isinstance(tensor, torch.nn.Parameter)}
        averages = cast(RunConfig, config).optimization.ema_decay is not None
        kinds = ["exp_avg", "exp_avg_sq", *(["weights"] if averages else [])]
        buffers = {f"{kind}.{name}": tensor for kind in kinds for name, tensor in trained.items()}
        for name, tensor in read_tensors(checkpoint, OPTIMIZER, buffers).items():
            if not bool(torch.isfinite(tensor).all()):
                yield f"{OPTIMIZER} of checkpoint {checkpoint.name} cannot be used: '{name}' is not finite"
                return

    # The one choice: a loop of its own, or gradients.
    def session(self, request: TrainRequest) -> TrainingSession | None:
        """Return a session of the task's own, if any. Raises ``UsageError`` for what cannot be trained."""
        return None

    def prepare(self, config: ConfigT, folder: Path, source: Checkpoint | None, origin: str | None) -> PrepareEvents:
        """Encode the text into RUN/data (``folder``), unless that is done.

        The checkpoint ``source`` provides vocabularies and labels; None if they are still to be made. ``origin`` is the
        fingerprint of the initial weights.
        """
        raise NotImplementedError

    def load_data(self, config: ConfigT, folder: Path) -> DataT:
        """Open what ``prepare`` wrote."""
        raise NotImplementedError

    def build_model(self, config: ConfigT, data: DataT) -> ModelT:
        """Build a model with fresh weights; torch is seeded."""
        raise NotImplementedError

    # Training.
    def dataset(self, data: DataT) -> Dataset:
        """Return the training examples; by default ``data.train``."""
        return cast("Dataset", cast(Any, data).train)

    def sampler(self, config: ConfigT, data: DataT) -> Sampler | None:
        """Return which examples an epoch uses; None: every example once."""
        return None

    # Built once per run; it closes over model and device.
    def loss(self, config: ConfigT, model: ModelT, data: DataT, device: torch.device) -> LossFunction:
        """Return the training loss."""
        raise NotImplementedError

    def evaluation(self, config: ConfigT, data: DataT, device: torch.device, stop: Stop | None) -> Evaluation:
        """Return the evaluation on the development set."""
        raise NotImplementedError

    # Checkpoints.
    def model_for_checkpoint(self, checkpoint: Checkpoint, config: ConfigT) -> ModelT:
        """Build a model for a checkpoint's weights, after the check of ``check_compatible``."""
        raise NotImplementedError

    def init_weights(self, config: ConfigT, model: ModelT, source: Checkpoint) -> None:
        """Copy initial weights from a run of this task or of one in ``TaskSpec.init_from_tasks``."""
        from attnkit.checkpoints.weights import load_weights  # imports torch

        load_weights(cast("torch.nn.Module", model), source)

    # Optional parts.
    def lr_multipliers(self, config: ConfigT, model: ModelT) -> Mapping[str, float]:
        """Return the learning-rate multipliers that are not 1, by parameter name."""
        return {}

    # Description.
    def model_card(self, config: ConfigT, name: str) -> ModelCardFields:
        """Return what the model card of the run ``name`` says."""
        raise NotImplementedError


AnyTask = Task[Any, Any, Any]


def task_of(config: RunSettings) -> AnyTask:
    """Return the task of a configuration; its module is imported on the first call."""
    return cast(AnyTask, load_symbol(task_spec(config.task, config.model_kind).task_path))
