"""Loading of trained models of any task."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import load_weights
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.task import task_of
from attnkit.runtime.devices import choose_device


@dataclass(frozen=True)
class LoadedModel:
    """A trained model in evaluation mode, with its checkpoint and configuration."""

    path: Path
    checkpoint: Checkpoint  #: contains vocabularies and labels, which the task reads itself
    config: Any  #: configuration, an instance of the task's class
    model: Any
    device: torch.device


def load_model(
    path: Path,
    task: str,
    *,
    device: str = "auto",
    checkpoint: str | None = None,
    dtype: torch.dtype | None = None,
    warn: Callable[[str], None] = lambda text: None,
    adapter: Path | None = None,
) -> LoadedModel:
    """Load a model: ``best`` (the default), ``last``, ``averaged`` or ``step-N``.

    With ``adapter``, the run of an adapter, it is the adapter on the weights of the checkpoint.

    ``device`` is a torch device, or ``auto`` for CUDA if available, else the CPU. ``warn`` receives warnings about
    damaged newer checkpoints. Raises ``RunError`` if the run or checkpoint is missing, damaged or of another task, or
    the adapter was trained on other weights.
    """
    # The checkpoint is verified against its manifest.
    chosen, warnings = RunFolder(path).adapted(checkpoint, adapter)
    for warning in warnings:
        warn(warning)
    return load_checkpoint(path, chosen, read_run_config(chosen, task), device=device, dtype=dtype)


def load_checkpoint(
    path: Path, checkpoint: Checkpoint, config: Any, *, device: str = "auto", dtype: torch.dtype | None = None
) -> LoadedModel:
    """Load a verified checkpoint's model; raise ``RunError`` for misfit weights."""
    where = choose_device(device)
    # Checks the number of weights before the model is built: a crafted configuration cannot fill the memory.
    model = task_of(config).model_for_checkpoint(checkpoint, config)
    load_weights(model, checkpoint)
    return LoadedModel(path, checkpoint, config, model.eval().to(where, dtype), where)
