"""Tiny runs of language models, for the tests of pretraining."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnkit.engine.resolve import resolve
from attnkit.engine.trainer import TrainingStarted, TrainRequest, train

STEADY = ["precision=float32", "device=cpu", "threads=1"]
SMALL = ["model.d_model=32", "model.n_heads=2", "model.n_layers=1", "model.d_ff=64", "model.max_length=24"]


def configure(task: str, files: list[Path], *sets: str, **flags: Any) -> Any:
    given = {"task": task, "data.files": [str(path) for path in files], **flags}
    sizes = [*STEADY, *SMALL, "data.sequence_length=24", "vocabulary.size=300", "optimization.batch_tokens=400"]
    return resolve(given, sets=[*sizes, *sets], preset_name="tiny").config


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def prepare(config: Any, run: Path) -> list[Any]:
    """Prepare the text of a run and take its first step; return what was said."""
    said = []
    for event in train(TrainRequest(config, run)):
        said.append(event)
        if isinstance(event, TrainingStarted):
            break
    return said
