"""Which runs hold a language model, BERT or GPT, whatever was made of it. Knows no torch."""

from __future__ import annotations

from pathlib import Path

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_tree
from attnkit.engine.registry import TASKS
from attnkit.models.language_config import LanguageConfig


def _reads(name: str) -> bool:
    model = TASKS[name].config.model_fields["model"].annotation
    return isinstance(model, type) and issubclass(model, LanguageConfig)


LANGUAGES = tuple(filter(_reads, TASKS))
"""The kinds of runs whose model reads text as BERT and GPT do."""


def holds_language(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint is of one of ``LANGUAGES``. Raises ``RunError`` for a damaged one."""
    return read_tree(checkpoint).get("task") in LANGUAGES


def is_language(path: Path) -> bool:
    """Return whether a run of a language model lies at a path, which may hold anything or nothing."""
    return path.is_dir() and RunFolder(path).exists() and holds_language(RunFolder(path).checkpoint()[0])
