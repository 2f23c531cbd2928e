"""Request for a training run and the events that training yields. Torch-free."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.engine.run_config import RunSettings

PrepareEvent = StatusEvent | DataCheckEvent | WarningEvent
PrepareEvents = Iterator[PrepareEvent]
Sample = tuple[str, str, str]  #: input, reference and prediction


@dataclass(frozen=True)
class TrainRequest:
    """Request for a training run: configuration, run folder and options."""

    config: RunSettings
    path: Path
    overwrite: bool = False  #: move an old run aside and start over
    init_from: Path | None = None  #: run that provides the vocabulary and the initial weights
    origins: Mapping[str, str] = field(default_factory=dict)
    """Dotted key -> origin of its value, kept in the run for reports; keys with their default value have none."""
    # Callbacks to stop and to report.
    stop: Callable[[], bool] | None = None
    """Polled once per step and between the batches of an evaluation; True saves a checkpoint and stops."""
    report_progress: Callable[[str], None] = lambda text: None  #: receives transient messages while text is encoded


@dataclass(frozen=True)
class TrainingStarted:
    """Event: training starts or resumes."""

    step: int
    n_parameters: int
    counts: Mapping[str, int]
    device: str
    precision: str
    unit: str = "pairs"  #: plural noun for the units of ``counts``


@dataclass(frozen=True)
class TrainingProgress:
    """Event: progress of a training loop without a development set."""

    step: int
    done: float  #: fraction of the run, from 0 to 1
    loss: float
    learning_rate: float
    speed: float  #: units per second
    seconds_left: float
    unit: str  #: plural noun for the units of ``speed``


@dataclass(frozen=True)
class ValidationFinished:
    """Event: the development set was evaluated."""

    record: Any  #: ``EvaluationRecord`` of the training loop
    samples: list[Sample]


@dataclass(frozen=True)
class TrainingFinished:
    """Event: the run is complete."""

    reason: str
    step: int
    best: str  #: the checkpoint that ``translate`` and other commands load by default
    metrics: Mapping[str, float]
    """Development scores of the best checkpoint, or training metrics if there is no development set."""
    already: bool = False  #: whether the run was already complete


Event = Any
"""``StatusEvent``, ``WarningEvent``, ``DataCheckEvent``, ``TrainingStarted``, ``TrainingProgress``, ``StepRecord``,
``ValidationFinished`` or ``TrainingFinished``."""
