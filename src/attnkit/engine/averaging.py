"""Averaging of the checkpoints of a run into a new checkpoint."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnkit.checkpoints.adapters import DESCRIPTION
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import held_weights, read_tensors, tensors_of, to_bytes
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_run_config, read_state
from attnkit.engine.run_state import scheduled_steps
from attnkit.engine.task import task_of
from attnkit.errors import RunError, UsageError


@dataclass(frozen=True)
class AverageResult:
    """Names of the averaged checkpoints and path of the result."""

    names: list[str]
    path: Path
    warnings: tuple[str, ...] = ()  #: damage to newer checkpoints, which were skipped

    def to_dict(self) -> dict[str, Any]:
        """Return the result as ``attnkit average --json`` does."""
        return {"averaged": self.names, "path": str(self.path)}


def average_run(path: Path, n: int | None, names: list[str]) -> AverageResult:
    """Write the mean of checkpoints to RUN/averaged and set ``best`` to it.

    Averages the checkpoints ``names``, the ``n`` newest scheduled ones, or by default all scheduled ones. A checkpoint
    saved by a stop request between two scheduled ones must be named. Raises ``UsageError`` if both ``names`` and ``n``
    are given, ``RunError`` if there are too few checkpoints or their models differ.
    """
    if names and n is not None:
        raise UsageError("checkpoint names and a number of checkpoints cannot be combined")
    # The newest configuration, as limits may have been raised when the run was resumed.
    folder = RunFolder(path)
    newest, warnings = folder.checkpoint("last")
    config = read_run_config(newest)
    # JSON keys are strings.
    scored = {int(step) for step in read_state(newest)["scores"]}
    steps = scheduled_steps(folder.steps(), scored, config.checkpoints.save_every)
    if n is not None and n > len(steps):
        raise RunError(
            f"the run has {len(steps)} scheduled checkpoints, fewer than {n}",
            where=str(path),
            help="train with --set checkpoints.keep_last=N to keep more, or name checkpoints with --checkpoint",
        )
    # Oldest first, so that messages list them in order.
    wanted = names or [f"step-{step}" for step in (steps[-n:] if n is not None else steps)]
    if len(wanted) < 2:
        raise RunError("averaging needs at least two checkpoints", where=str(path))
    chosen = [folder.checkpoint(name)[0] for name in wanted]
    expected = tensors_of(task_of(config).model_for_checkpoint(newest, config))
    file, held = held_weights(newest, expected)
    with folder.lock():  # a training process could delete a checkpoint while it is read
        try:
            # A generator keeps only one checkpoint at a time in memory.
            mean = average(read_tensors(checkpoint, file, held) for checkpoint in chosen)
        except ValueError as error:
            raise RunError(f"these checkpoints cannot be averaged: {error}", where=str(path)) from error
        texts = {
            name: newest.read(name)
            for name in ("config.yaml", DESCRIPTION, *TEXT_FILES)
            if name in newest.manifest.files
        }
        # No metrics: the average is not evaluated here.
        stored = {"averaged": [checkpoint.step for checkpoint in chosen], "metrics": {}}
        contents = {**texts, "state.json": json.dumps(stored).encode(), file: to_bytes(mean)}
        saved = folder.save_averaged(newest.step, contents)
        folder.set_best("averaged")
    return AverageResult([checkpoint.name for checkpoint in chosen], saved.path, tuple(warnings))


def average(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each tensor in its own dtype, accumulated in float64.

    Checkpoints are consumed one at a time, so with a generator only one checkpoint and the sums are in memory. Tensors
    that are not floating point must be equal in all checkpoints. Raises ``ValueError`` if there are no checkpoints, or
    if names, shapes, dtypes or integer tensors differ.
    """
    first: Mapping[str, Tensor] = {}
    sums: dict[str, Tensor] = {}
    n = 0
    for n, tensors in enumerate(checkpoints, start=1):
        if n == 1:
            # Kept for comparing names, shapes and dtypes; its values are in the sums.
            first = {name: torch.empty_like(t) if t.is_floating_point() else t for name, t in tensors.items()}
            # In float64, the mean of equal checkpoints is bit-identical to them.
            sums = {name: t.to(torch.float64, copy=True) for name, t in tensors.items() if t.is_floating_point()}
            continue
        if odd := first.keys() ^ tensors.keys():
            what = f"tensor '{min(odd)}' is in only one checkpoint"
            raise ValueError(f"checkpoint {n} does not have the tensors of the first: {what}")
        # Compare everything before adding: shapes that broadcast would not raise an error.
        for name, tensor in first.items():
            if tensor.shape != tensors[name].shape or tensor.dtype != tensors[name].dtype:
                raise ValueError(f"'{name}' differs in shape or dtype between checkpoint {n} and the first")
            if not tensor.is_floating_point() and not torch.equal(tensor, tensors[name]):
                raise ValueError(f"'{name}' differs in checkpoint {n} and cannot be averaged: not floating point")
        for name, total in sums.items():
            total += tensors[name]
    if n == 0:
        raise ValueError("no checkpoints to average")
    return {name: (sums[name] / n).to(t.dtype) if name in sums else t.clone() for name, t in first.items()}
