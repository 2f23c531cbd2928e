"""Presets: default settings by corpus size, each of which can be overridden. Torch-free."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args

from attnkit.models.config import SIZES

Preset = Literal["tiny", "mini", "small", "base", "big"]
"""Presets of all tasks; ``registry.TASKS`` lists those of each task."""
TaskName = Literal[
    "translation",
    "autoencode",
    "mlm",
    "clm",
    "text-classification",
    "token-classification",
    "question-answering",
    "word2vec",
]
"""Tasks, described in ``registry.TASKS``."""
ModelName = Literal["transformer", "rnn", "mlp", "han", "bert", "gpt"]
"""Kinds of models of all tasks; each task's configuration accepts some of them."""
Tree = dict[str, Any]

PresetThresholds = tuple[tuple[float, str], ...]
"""(number of lines, exclusive; preset), ascending."""
AUTO: PresetThresholds = ((20_000, "tiny"), (300_000, "small"), (4_000_000, "base"), (math.inf, "big"))
LANGUAGE_AUTO: PresetThresholds = ((20_000, "tiny"), (2_000_000, "mini"), (20_000_000, "small"), (math.inf, "base"))
"""Thresholds of language models and of fine-tuning."""

SCALES: dict[str, Tree] = {
    "tiny": {
        "vocabulary": {"size": 4000},
        "optimization": {
            "learning_rate": 2e-3,
            "schedule": "cosine",
            "warmup_steps": 200,
            "warmup_fraction": 0.2,
            "batch_tokens": 3000,
            "ema_decay": 0.995,
        },
        "limits": {"max_epochs": 30.0},
        "evaluation": {"every_epochs": 2.0},
    },
    "small": {
        "vocabulary": {"size": 8000},
        "optimization": {
            "learning_rate": 1e-3,
            "schedule": "cosine",
            "warmup_steps": 500,
            "warmup_fraction": 0.2,
            "batch_tokens": 4096,
            "ema_decay": 0.999,
        },
        "limits": {"max_epochs": 30.0},
        "evaluation": {"every_epochs": 2.0},
    },
    "base": {
        "vocabulary": {"size": 16000},
        "optimization": {
            "learning_rate": 7e-4,
            "schedule": "inverse_sqrt",
            "warmup_steps": 4000,
            "batch_tokens": 16384,
        },
        "limits": {"max_steps": 100_000},
        "evaluation": {"every_steps": 2000},
        "checkpoints": {"average": 5},
    },
    "big": {
        "vocabulary": {"size": 32000},
        "optimization": {
            "learning_rate": 7e-4,
            "schedule": "inverse_sqrt",
            "warmup_steps": 4000,
            "batch_tokens": 65536,
            "gradient_accumulation_steps": 4,
        },
        "limits": {"max_steps": 300_000},
        "evaluation": {"every_steps": 5000},
        "checkpoints": {"average": 5},
    },
}
PRESETS: tuple[str, ...] = get_args(Preset)


def choose(n_rows: int, thresholds: PresetThresholds = AUTO) -> str:
    """Return the preset for a number of sentence pairs, rows or lines."""
    return next(name for most, name in thresholds if n_rows < most)


def preset(name: str, kind: str) -> Tree:
    """Return the configuration tree of a preset for a kind of model; of an unknown kind the name alone."""
    return {**SCALES[name], "model": {"kind": kind, **SIZES.get(kind, {}).get(name, {})}}
