"""Average the weights of several checkpoints of a run into one further checkpoint."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import MODEL, read_tensors, tensors_of, to_bytes
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_run_config, read_state
from attnkit.engine.run_state import scheduled_steps
from attnkit.engine.task import task_of
from attnkit.errors import RunError, UsageError


@dataclass(frozen=True)
class AverageResult:
    """The averaged checkpoints and the folder of their average."""

    names: list[str]
    path: Path
    warnings: tuple[str, ...] = ()  #: damage of newer checkpoints that were skipped


def average_run(path: Path, n: int | None, names: list[str]) -> AverageResult:
    """Write RUN/averaged, the mean of some checkpoints, and let ``best`` name it.

    Without names and number, all scheduled checkpoints are averaged. A checkpoint that a requested stop saved between
    two scheduled ones takes part only by name. ``n`` is a number of newest checkpoints. Raises ``RunError`` for too few
    checkpoints, or checkpoints of different models.
    """
    if names and n is not None:
        raise UsageError("checkpoint names and a number of checkpoints cannot be combined")
    # The newest configuration: limits may have been raised when the run was resumed.
    folder = RunFolder(path)
    newest, warnings = folder.checkpoint("last")
    config = read_run_config(newest)
    # JSON has text keys only.
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
    with folder.lock():  # a running training could delete a checkpoint while it is read
        try:
            # A generator: one checkpoint at a time is in memory, whatever their number.
            mean = average(read_tensors(checkpoint, MODEL, expected) for checkpoint in chosen)
        except ValueError as error:
            raise RunError(f"these checkpoints cannot be averaged: {error}", where=str(path)) from error
        texts = {file: newest.read(file) for file in ("config.yaml", *TEXT_FILES) if file in newest.manifest.files}
        # No metrics: the average is not evaluated here.
        stored = {"averaged": [checkpoint.step for checkpoint in chosen], "metrics": {}}
        contents = {**texts, "state.json": json.dumps(stored).encode(), MODEL: to_bytes(mean)}
        saved = folder.save_averaged(newest.step, contents)
        folder.set_best("averaged")
    return AverageResult([checkpoint.name for checkpoint in chosen], saved.path, tuple(warnings))


def average(checkpoints: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each tensor over checkpoints, summed in float64 and given back in its own dtype.

    Checkpoints are consumed one at a time, so a generator that loads them keeps memory at one checkpoint and the sum.
    Tensors that are not floating point must be the same in all of them. Raises ``ValueError`` if no checkpoint is
    given, or names, shapes, dtypes or whole-number tensors differ.
    """
    first: Mapping[str, Tensor] = {}
    sums: dict[str, Tensor] = {}
    n = 0
    for n, tensors in enumerate(checkpoints, start=1):
        if n == 1:
            # The first one serves to compare names, shapes and dtypes: its values are in the sums.
            first = {name: torch.empty_like(t) if t.is_floating_point() else t for name, t in tensors.items()}
            # float64: the mean of equal checkpoints is that checkpoint, to the last bit.
            sums = {name: t.to(torch.float64, copy=True) for name, t in tensors.items() if t.is_floating_point()}
            continue
        if odd := first.keys() ^ tensors.keys():
            what = f"tensor '{min(odd)}' is in only one checkpoint"
            raise ValueError(f"checkpoint {n} does not have the tensors of the first: {what}")
        # All is compared before anything is added: shapes that broadcast would add up without an error.
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
