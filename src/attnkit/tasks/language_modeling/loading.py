"""Which runs hold a language model, BERT or GPT, fine-tuned or not. Torch-free."""

from pathlib import Path

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.checkpoints.run_folder import RunFolder, is_run
from attnkit.engine.checkpoint_metadata import read_tree

LANGUAGE_MODELS = ("bert", "gpt")
LANGUAGE_TASKS = ("mlm", "clm", "text-classification", "token-classification", "question-answering")
"""Tasks whose runs may hold one of ``LANGUAGE_MODELS``."""


def holds_language(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint has BERT or GPT inside. Raises ``RunError`` for a damaged one."""
    model = read_tree(checkpoint).get("model")
    return isinstance(model, dict) and model.get("kind") in LANGUAGE_MODELS


def is_language(path: Path) -> bool:
    """Return whether a run of a language model lies at a path, which may hold anything or nothing."""
    return is_run(path) and holds_language(RunFolder(path).checkpoint()[0])
