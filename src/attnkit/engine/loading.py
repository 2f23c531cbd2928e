"""Load the model of a checkpoint of any task."""

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
    checkpoint: Checkpoint  #: source of vocabularies and labels, which a task reads itself
    config: Any  #: the configuration, of the task's own class
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
) -> LoadedModel:
    """Load a checkpoint of a run: ``best``, the default, ``last``, ``averaged`` or ``step-N``.

    ``device`` is a device of torch; ``auto``: CUDA if there is one, else the CPU. ``warn`` receives the warnings on
    damaged newer checkpoints. Raises ``RunError`` if run or checkpoint is missing, damaged, or of another task.
    """
    # Verified against its manifest.
    chosen, warnings = RunFolder(path).checkpoint(checkpoint)
    for warning in warnings:
        warn(warning)
    config = read_run_config(chosen, task)
    where = choose_device(device)
    # Checks the number of weights before the model is built: a crafted configuration cannot fill the memory.
    model = task_of(config).model_for_checkpoint(chosen, config)
    load_weights(model, chosen)
    return LoadedModel(path, chosen, config, model.eval().to(where, dtype), where)
