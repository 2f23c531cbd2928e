"""What one kind of job hands in, so that everything else about its runs is the same code for all of them.

The trainer handles the lock, checkpoints, resuming, stop requests, ranks, non-finite steps, status and averages. A task
provides the methods below and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.distributed.process_group import ProcessGroup
from attnkit.engine.dry_run import RunEstimate
from attnkit.engine.model_card import ModelCardFields
from attnkit.engine.registry import TASKS, load_symbol
from attnkit.engine.weights import load_weights
from attnkit.training.loop import TrainingJob

Stop = Callable[[], bool]
"""Says whether a stop was asked for."""
Sample = tuple[str, str, str]
"""What went in, what should have come out, what came out."""
_T = TypeVar("_T")


class EvaluationCancelled(Exception):
    """A stop was asked for before an evaluation was done."""


def until_stopped(stop: Stop | None, items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items, asking before each. Raises ``EvaluationCancelled`` at a yes."""
    for item in items:
        if stop is not None and stop():
            raise EvaluationCancelled
        yield item


class Prepared(Protocol):
    """What a training job reads, opened."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What became of the lines, for people."""
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


def load_all_weights(config: Any, model: Any, source: Checkpoint) -> None:
    """Give a model all weights of a run of its own kind."""
    load_weights(model, source)


def uniform_lr(config: Any, model: Any) -> Mapping[str, float]:
    """Let all parameters learn at the same rate."""
    return {}


@dataclass(frozen=True)
class Task:
    """The functions of one kind of job. Each takes the run's configuration, which is of that kind."""

    prepare: Callable[
        [Any, Path, Callable[[], Checkpoint | None], str | None], Iterator[StatusEvent | DataCheckEvent | WarningEvent]
    ]
    """(config, RUN/data, vocabulary_source, origin): prepare the data folder unless ``is_prepared``.
    ``vocabulary_source`` returns the checkpoint that provides the vocabularies, if any. ``origin`` is the fingerprint
    of the initial weights."""
    load_data: Callable[[Any, Path], Prepared]
    """(config, RUN/data): open what ``prepare`` made."""
    build_model: Callable[[Any, Any], Any]
    """(config, prepared): return a fresh model; torch is seeded."""
    evaluation: Callable[[Any, Any, torch.device, Stop | None], Evaluation]
    """(config, prepared, device, stop)."""
    build_job: Callable[[Any, Any, Any, Any, ProcessGroup, Stop | None], TrainingJob]
    """(config, model, prepared, evaluation, ranks, stop): the job of the training loop."""
    model_for_checkpoint: Callable[[Checkpoint, Any], Any]
    """(checkpoint, config): return a model for a checkpoint's weights, refusing before it is built (``RunError``) where
    they are too few bytes for it."""
    check_compatible: Callable[[Checkpoint, Any], None]
    """(checkpoint, config): the refusal of ``fitting`` alone."""
    model_card: Callable[[Any, str], ModelCardFields]
    """(config, name of the run): what the model card says."""
    dry_run: Callable[[Any, Path | None], RunEstimate]
    """(config, init_from): estimate a run without running it."""
    init_weights: Callable[[Any, Any, Checkpoint], None] = load_all_weights
    """(config, model, source): give a fresh model the weights that its run begins with; ``source`` is of its own kind
    or of one that ``TaskSpec.init_from_tasks`` names, and ``refuse_misfit`` has let it pass."""
    lr_multipliers: Callable[[Any, Any], Mapping[str, float]] = uniform_lr
    """(config, model): name of a parameter -> what the learning rate is multiplied by, where that is not 1."""


def task_of(name: str) -> Task:
    """Return the task of a name in ``TASKS``; its module is imported when it is asked for."""
    task: Task = load_symbol(TASKS[name].task_path)
    return task
