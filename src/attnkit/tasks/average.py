"""Average the weights of a run's checkpoints into a checkpoint of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch

from attnkit.errors import RunError, UsageError
from attnkit.runs.checkpoint import Checkpoint
from attnkit.runs.folder import RunFolder
from attnkit.tasks.keeping import to_bytes
from attnkit.training.averaging import average


@dataclass(frozen=True)
class Averaged:
    """What was averaged, and where it lies."""

    names: list[str]
    path: Path


def average_run(path: Path, n: int | None, names: list[str]) -> Averaged:
    """Write RUN/averaged: the mean of the newest ``n`` checkpoints, or of the named ones. ``best`` then names it.

    Raises:
        RunError: too few checkpoints, or checkpoints of different models.
    """
    folder = RunFolder(path)
    newest, _ = folder.checkpoint("last")
    chosen = _choose(folder, n, names)
    with folder.lock():
        try:
            mean = average(safetensors.torch.load(checkpoint.read("model.safetensors")) for checkpoint in chosen)
        except ValueError as error:
            raise RunError(f"these checkpoints cannot be averaged: {error}", where=str(path)) from error
        texts: dict[str, bytes] = {
            file: newest.read(file)
            for file in ("config.yaml", "tokenizer.json", "tokenizer.target.json")
            if file in newest.manifest.files
        }
        stored: dict[str, object] = {"averaged": [checkpoint.step for checkpoint in chosen], "metrics": {}}
        contents: dict[str, bytes] = {
            **texts,
            "state.json": json.dumps(stored).encode(),
            "model.safetensors": to_bytes(mean),
        }
        saved = folder.save_averaged(newest.step, contents)
        folder.set_best("averaged")
    return Averaged([checkpoint.name for checkpoint in chosen], saved.path)


def _choose(folder: RunFolder, n: int | None, names: list[str]) -> list[Checkpoint]:
    if names and n is not None:
        raise UsageError("name checkpoints or a number of them, not both")
    steps = folder.steps()
    if n is not None and n > len(steps):
        raise RunError(
            f"there are {len(steps)} checkpoints, fewer than {n}",
            where=str(folder.path),
            help="train with --set checkpoints.keep_last=N to keep more",
        )
    wanted = names or [f"step-{step}" for step in (steps[-n:] if n is not None else steps)]
    if len(wanted) < 2:
        raise RunError("an average needs two checkpoints or more", where=str(folder.path))
    return [folder.checkpoint(name)[0] for name in wanted]
