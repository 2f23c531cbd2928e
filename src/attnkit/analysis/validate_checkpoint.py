"""Whether a checkpoint makes sense, and what it says of its run, whatever kind of run that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from pydantic import BaseModel

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.weights import MODEL, OPTIMIZER, read_tensors, tensors_of
from attnkit.engine import resolve
from attnkit.engine.checkpoint_metadata import TEXT_FILES, read_averaged, read_run_config, read_state, read_tree
from attnkit.engine.task import task_of
from attnkit.errors import DataError, RunError, UsageError
from attnkit.tasks.word2vec import checkpoint as vectors
from attnkit.tasks.word2vec import resolve as vectors_resolve

COPIED = {*TEXT_FILES, *vectors.COPIES}
"""Files of a checkpoint of which a copy lies at the root of its run."""


def is_word2vec(checkpoint: Checkpoint) -> bool:
    """Return whether it is of a run of word vectors."""
    return read_tree(checkpoint).get("task") == vectors.TASK


def config_of(checkpoint: Checkpoint) -> BaseModel:
    """Return its configuration. Raises ``RunError`` where it makes no sense."""
    return vectors.read_config(checkpoint) if is_word2vec(checkpoint) else read_run_config(checkpoint)


def differences(old: Any, new: Any) -> list[str]:
    """Return ``key: old -> new`` for what makes one configuration another run than the other."""
    if old.task == vectors.TASK:
        return vectors_resolve.differences(old, new)
    return resolve.differences(old, new)


def metrics_size(checkpoint: Checkpoint) -> int:
    """Return how many bytes of the log it knows of."""
    if is_word2vec(checkpoint):
        return vectors.read_state(checkpoint).metrics_size
    size: int = read_state(checkpoint)["metrics_size"]
    return size


def best_step(checkpoint: Checkpoint) -> int | None:
    """Return which step was the best so far; None where nothing is scored."""
    if is_word2vec(checkpoint):
        return None
    step: int | None = read_state(checkpoint)["counters"]["best_step"]
    return step


def find_errors(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield why a checkpoint cannot be used though every byte is as it was saved."""
    try:
        if is_word2vec(checkpoint):
            vectors.check(checkpoint)
        else:
            yield from _of_model(checkpoint)
    except (RunError, DataError, UsageError) as error:
        yield error.what


def _of_model(checkpoint: Checkpoint) -> Iterator[str]:
    config = read_run_config(checkpoint)
    expected = tensors_of(task_of(config.task).model_for_checkpoint(checkpoint, config))
    read_tensors(checkpoint, MODEL, expected)
    if checkpoint.name == "averaged":
        read_averaged(checkpoint)
        return
    read_state(checkpoint)
    if checkpoint.step == 0 and OPTIMIZER not in checkpoint.manifest.files:
        return  # an imported run has yet to train
    trained = {name: tensor for name, tensor in expected.items() if isinstance(tensor, torch.nn.Parameter)}
    kinds = ["exp_avg", "exp_avg_sq", *(["weights"] if config.optimization.ema_decay is not None else [])]
    buffers = {f"{kind}.{name}": tensor for kind in kinds for name, tensor in trained.items()}
    for name, tensor in read_tensors(checkpoint, OPTIMIZER, buffers).items():
        if not bool(torch.isfinite(tensor).all()):
            yield f"{OPTIMIZER} of checkpoint {checkpoint.name} cannot be used: '{name}' is not finite"
            return
