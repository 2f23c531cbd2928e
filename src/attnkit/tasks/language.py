"""Which runs hold a language model, BERT or GPT, whatever was made of it. Knows no torch."""

from __future__ import annotations

from pathlib import Path

from attnkit.models.language_config import LanguageConfig
from attnkit.runs.checkpoint import Checkpoint
from attnkit.runs.folder import RunFolder
from attnkit.tasks.kinds import KINDS
from attnkit.tasks.saved import read_tree


def holds_language(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint's model reads text as BERT and GPT do. Raises ``RunError`` for a damaged one."""
    kind = KINDS.get(str(read_tree(checkpoint).get("task")))
    model = None if kind is None else kind.config.model_fields["model"].annotation
    return isinstance(model, type) and issubclass(model, LanguageConfig)


def is_language(path: Path) -> bool:
    """Return whether a run of a language model lies at a path, which may hold anything or nothing."""
    return path.is_dir() and RunFolder(path).exists() and holds_language(RunFolder(path).checkpoint()[0])
