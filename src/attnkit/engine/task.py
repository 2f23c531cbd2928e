"""What one kind of job hands in, so that everything else about its runs is the same code for all of them.

``course`` and ``keeping`` see to the lock, checkpoints, resuming, stops, ranks, steps that are not finite, status and
averages; they ask a task no more than what stands here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.data.prepared_dir import Checked, Stage, Warned
from attnkit.distributed.process_group import Ranks
from attnkit.engine.dry_run import Plan
from attnkit.engine.load import load_into
from attnkit.engine.model_card import About
from attnkit.engine.registry import KINDS
from attnkit.training.loop import Job

Stop = Callable[[], bool]
"""Says whether a stop was asked for."""
Sample = tuple[str, str, str]
"""What went in, what should have come out, what came out."""
_T = TypeVar("_T")


class Abandoned(Exception):
    """A stop was asked for before an evaluation was done."""


def unless(stop: Stop | None, items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items, asking before each. Raises ``Abandoned`` at a yes."""
    for item in items:
        if stop is not None and stop():
            raise Abandoned
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
        """What a checkpoint holds besides weights, by the names of ``saved.TEXTS``: vocabularies and the like."""
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


def take_all(config: Any, model: Any, source: Checkpoint) -> None:
    """Give a model all weights of a run of its own kind."""
    load_into(model, source)


def one_rate(config: Any, model: Any) -> Mapping[str, float]:
    """Let all parameters learn at the same rate."""
    return {}


@dataclass(frozen=True)
class Task:
    """The functions of one kind of job. Each takes the run's configuration, which is of that kind."""

    prepare: Callable[[Any, Path, Callable[[], Checkpoint | None], str | None], Iterator[Stage | Checked | Warned]]
    """(config, RUN/data, giver, origin): make the folder, unless that has been done (``encoded``). ``giver`` returns
    the checkpoint whose vocabularies are to be used, if there is one; ``origin`` is of the weights begun with."""
    open: Callable[[Any, Path], Prepared]
    """(config, RUN/data): open what ``prepare`` made."""
    build: Callable[[Any, Any], Any]
    """(config, prepared): return a fresh model; torch is seeded."""
    evaluation: Callable[[Any, Any, torch.device, Stop | None], Evaluation]
    """(config, prepared, device, stop)."""
    job: Callable[[Any, Any, Any, Any, Ranks, Stop | None], Job]
    """(config, model, prepared, evaluation, ranks, stop): what the training loop needs to know; see ``course.job``."""
    fitting: Callable[[Checkpoint, Any], Any]
    """(checkpoint, config): return a model for a checkpoint's weights, refusing before it is built (``RunError``) where
    they are too few bytes for it."""
    refuse_misfit: Callable[[Checkpoint, Any], None]
    """(checkpoint, config): the refusal of ``fitting`` alone."""
    about: Callable[[Any, str], About]
    """(config, name of the run): what the model card says."""
    plan: Callable[[Any, Path | None], Plan]
    """(config, init_from): estimate a run without running it."""
    take: Callable[[Any, Any, Checkpoint], None] = take_all
    """(config, model, source): give a fresh model the weights that its run begins with; ``source`` is of its own kind
    or of one that ``Kind.begins_with`` names, and ``refuse_misfit`` has let it pass."""
    rates: Callable[[Any, Any], Mapping[str, float]] = one_rate
    """(config, model): name of a parameter -> what the learning rate is multiplied by, where that is not 1."""


def task_of(name: str) -> Task:
    """Return the task of a name in ``KINDS``; its module is imported when it is asked for."""
    task: Task = import_module(f"attnkit.tasks.{KINDS[name].module}").TASK
    return task
