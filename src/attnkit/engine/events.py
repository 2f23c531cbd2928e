"""The request for a training run and the events that it yields. Torch-free."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.engine.run_config import RunSettings

PrepareEvent = StatusEvent | DataCheckEvent | WarningEvent
PrepareEvents = Iterator[PrepareEvent]
Sample = tuple[str, str, str]  #: input, reference and prediction


@dataclass(frozen=True)
class TrainRequest:
    """Request of a training run: configuration and run folder."""

    config: RunSettings
    path: Path
    overwrite: bool = False  #: move an old run aside and start over
    init_from: Path | None = None  #: run that provides the vocabulary and the initial weights
    # Ways to stop and to report.
    stop: Callable[[], bool] | None = None
    """Polled once per step, and between the batches of an evaluation: whether to save and end."""
    report_progress: Callable[[str], None] = lambda text: None  #: receives short-lived messages while text is encoded


@dataclass(frozen=True)
class TrainingStarted:
    """Training starts or resumes."""

    step: int
    n_parameters: int
    counts: Mapping[str, int]
    device: str
    precision: str
    unit: str = "pairs"  #: plural noun of what ``counts`` count


@dataclass(frozen=True)
class TrainingProgress:
    """Steps of a loop without a development set are done."""

    step: int
    done: float  #: share of the run, from 0 to 1
    loss: float
    learning_rate: float
    speed: float  #: units per second
    seconds_left: float
    unit: str  #: plural noun of what ``speed`` counts


@dataclass(frozen=True)
class ValidationFinished:
    """The development set was scored."""

    record: Any  #: the ``EvaluationRecord`` of the training loop
    samples: list[Sample]


@dataclass(frozen=True)
class TrainingFinished:
    """The run is complete."""

    reason: str
    step: int
    best: str  #: the checkpoint that ``translate`` and other commands load
    metrics: Mapping[str, float]
    """Its scores on the development set; of a run without one, the figures of its training."""
    already: bool = False  #: whether the run was complete before


Event = Any
"""``StatusEvent``, ``WarningEvent``, ``DataCheckEvent``, ``TrainingStarted``, ``TrainingProgress``, ``StepRecord``,
``ValidationFinished`` or ``TrainingFinished``."""
