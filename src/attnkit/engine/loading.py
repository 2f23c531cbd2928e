"""Open a run of any task for use: its configuration, and its model with the weights of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.task import task_of
from attnkit.engine.weights import load_weights
from attnkit.runtime.devices import choose_device


@dataclass(frozen=True)
class LoadedModel:
    """A model ready for use, with what it was trained with."""

    path: Path
    checkpoint: Checkpoint
    """Whatever else of it a task needs is read from here."""
    config: Any
    """Of the task that was asked for."""
    model: Any
    device: torch.device
    warnings: tuple[str, ...] = ()
    """What was wrong with newer checkpoints that were passed over."""


def load_model(path: Path, task: str, *, device: str = "auto", checkpoint: str | None = None) -> LoadedModel:
    """Open a checkpoint of a run: ``best``, ``last``, ``averaged`` or ``step-N``; without a name the best there is.

    Raises:
        RunError: no run, no such checkpoint, damaged, or of another task.
    """
    chosen, warnings = RunFolder(path).checkpoint(checkpoint)
    config = read_run_config(chosen, task)
    where = choose_device(device)
    model = task_of(task).model_for_checkpoint(chosen, config)
    load_weights(model, chosen)
    return LoadedModel(path, chosen, config, model.eval().to(where), where, tuple(warnings))
