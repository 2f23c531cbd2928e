"""Average the weights of a run's checkpoints into a checkpoint of its own."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import MODEL, read_tensors, tensors_of
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_run_config, read_state
from attnkit.engine.task import task_of
from attnkit.engine.weights import to_bytes
from attnkit.errors import RunError, UsageError
from attnkit.training.averaging import average


@dataclass(frozen=True)
class AverageResult:
    """What was averaged, and where it lies."""

    names: list[str]
    path: Path
    warnings: tuple[str, ...] = ()
    """What was wrong with newer checkpoints that were passed over."""


def average_run(path: Path, n: int | None, names: list[str]) -> AverageResult:
    """Write RUN/averaged: the mean of the newest ``n`` checkpoints, or of the named ones. ``best`` then names it.

    Without names or a number all are taken. What a stop saved between two planned ones counts only where it is named.

    Raises:
        RunError: too few checkpoints, or checkpoints of different models.
    """
    folder = RunFolder(path)
    newest, warnings = folder.checkpoint("last")
    chosen = _choose(folder, newest, n, names)
    config = read_run_config(newest)
    expected = tensors_of(task_of(config.task).model_for_checkpoint(newest, config))
    with folder.lock():
        try:
            mean = mean_of(chosen, expected)
        except ValueError as error:
            raise RunError(f"these checkpoints cannot be averaged: {error}", where=str(path)) from error
        texts: dict[str, bytes] = {
            file: newest.read(file) for file in ("config.yaml", *TEXT_FILES) if file in newest.manifest.files
        }
        stored: dict[str, object] = {"averaged": [checkpoint.step for checkpoint in chosen], "metrics": {}}
        contents: dict[str, bytes] = {
            **texts,
            "state.json": json.dumps(stored).encode(),
            "model.safetensors": to_bytes(mean),
        }
        saved = folder.save_averaged(newest.step, contents)
        folder.set_best("averaged")
    return AverageResult([checkpoint.name for checkpoint in chosen], saved.path, tuple(warnings))


def scheduled_steps(steps: Sequence[int], scored: Collection[int], every: int | None) -> list[int]:
    """Return the steps at which an uninterrupted run saves too: what a stop saved must not change any result.

    >>> planned([4, 6, 7, 8], scored={4, 8}, every=3)
    [4, 6, 8]

    Args:
        steps: those that have a checkpoint.
        scored: those that were evaluated; each is followed by a save.
        every: ``checkpoints.save_every``.
    """
    return [step for step in steps if step in scored or (every is not None and step % every == 0)]


def mean_of(checkpoints: Iterable[Checkpoint], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean weights of checkpoints, read one at a time. Raises ``RunError`` if some are not as expected."""
    return average(read_tensors(checkpoint, MODEL, expected) for checkpoint in checkpoints)


def _choose(folder: RunFolder, newest: Checkpoint, n: int | None, names: list[str]) -> list[Checkpoint]:
    if names and n is not None:
        raise UsageError("name checkpoints or a number of them, not both")
    scored = {int(step) for step in read_state(newest)["scores"]}
    steps = scheduled_steps(folder.steps(), scored, read_run_config(newest).checkpoints.save_every)
    if n is not None and n > len(steps):
        raise RunError(
            f"there are {len(steps)} checkpoints, fewer than {n}",
            where=str(folder.path),
            help="train with --set checkpoints.keep_last=N to keep more; what a stop saved, --checkpoint names",
        )
    wanted = names or [f"step-{step}" for step in (steps[-n:] if n is not None else steps)]
    if len(wanted) < 2:
        raise RunError("an average needs two checkpoints or more", where=str(folder.path))
    return [folder.checkpoint(name)[0] for name in wanted]
