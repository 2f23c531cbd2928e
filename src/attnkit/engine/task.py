"""Interface of a task; all tasks share the code of the engine.

The trainer handles the lock, checkpoints, resuming, stop requests, ranks, non-finite steps, status and averages. A task
provides the methods below and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.loader import Dataset, Sampler
from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.engine.dry_run import RunEstimate
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.registry import TASKS, load_symbol
from attnkit.engine.run_config import RunConfig
from attnkit.engine.weights import load_weights
from attnkit.training.losses import LossTerm

Stop = Callable[[], bool]
"""Says whether a stop was asked for."""
Sample = tuple[str, str, str]
"""Input, reference and prediction."""
_T = TypeVar("_T")


class EvaluationCancelled(Exception):
    """A stop was requested during an evaluation."""


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
        ...

    @property
    def fingerprint(self) -> str:
        """Changes with anything that is trained on."""
        ...

    @property
    def texts(self) -> Mapping[str, bytes]:
        """Text files of a checkpoint by their names (``metadata.TEXT_FILES``): vocabularies, labels."""
        ...


class Evaluation(Protocol):
    """The development set."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        ...

    @property
    def samples(self) -> list[Sample]:
        """A few of the last time."""
        ...

    def __call__(self, model: Any, /) -> Mapping[str, float] | None:
        """Return the metrics of the configuration by name; None if a stop was asked for, which changes nothing."""
        ...


PrepareEvent = StatusEvent | DataCheckEvent | WarningEvent
VocabularySource = Callable[[], Checkpoint | None]
"""Returns the checkpoint that provides the vocabularies, if any."""
LossFunction = Callable[[Any], Mapping[str, LossTerm]]
"""From a batch of the task's dataset to its loss terms."""
ConfigT = TypeVar("ConfigT", bound=RunConfig)
DataT = TypeVar("DataT", bound=Prepared)
ModelT = TypeVar("ModelT")


class Task(ABC, Generic[ConfigT, DataT, ModelT]):
    """What a task provides; everything else about its runs is the engine's."""

    @abstractmethod
    def prepare(
        self, config: ConfigT, folder: Path, vocabulary_source: VocabularySource, origin: str | None
    ) -> Iterator[PrepareEvent]:
        """Encode the text into RUN/data (``folder``), unless ``is_prepared``.

        ``origin`` is the fingerprint of the initial weights.
        """

    @abstractmethod
    def load_data(self, config: ConfigT, folder: Path) -> DataT:
        """Open what ``prepare`` wrote."""

    @abstractmethod
    def build_model(self, config: ConfigT, data: DataT) -> ModelT:
        """Build a model with fresh weights; torch is seeded."""

    @abstractmethod
    def dataset(self, data: DataT) -> Dataset:
        """Return the training examples."""

    def sampler(self, config: ConfigT, data: DataT) -> Sampler | None:
        """Return which examples an epoch uses; None: every example once."""
        return None

    @abstractmethod
    def loss(self, config: ConfigT, model: ModelT, data: DataT, device: torch.device) -> LossFunction:
        """Return the training loss."""

    @abstractmethod
    def evaluation(self, config: ConfigT, data: DataT, device: torch.device, stop: Stop | None) -> Evaluation:
        """Return the evaluation on the development set."""

    @abstractmethod
    def model_for_checkpoint(self, checkpoint: Checkpoint, config: ConfigT) -> ModelT:
        """Build a model for a checkpoint's weights, after the check of ``check_compatible``."""

    @abstractmethod
    def check_compatible(self, checkpoint: Checkpoint, config: ConfigT) -> None:
        """Raise ``RunError`` where a checkpoint's weights cannot be those of the model."""

    def init_weights(self, config: ConfigT, model: ModelT, source: Checkpoint) -> None:
        """Copy initial weights from a run of this task or of one in ``TaskSpec.init_from_tasks``."""
        load_weights(cast(torch.nn.Module, model), source)

    def lr_multipliers(self, config: ConfigT, model: ModelT) -> Mapping[str, float]:
        """Return the learning-rate multipliers that are not 1, by parameter name."""
        return {}

    @abstractmethod
    def model_card(self, config: ConfigT, name: str) -> ModelCardFields:
        """Return what the model card of the run ``name`` says."""

    @abstractmethod
    def dry_run(self, config: ConfigT, init_from: Path | None = None) -> RunEstimate:
        """Estimate a run without training."""


AnyTask = Task[Any, Any, Any]


def task_of(name: str) -> AnyTask:
    """Return the task of a name in ``TASKS``; its module is imported on the first call."""
    return cast(AnyTask, load_symbol(TASKS[name].task_path))
