"""Names of tasks, models and presets, which help pages list without imports."""

from typing import Literal

Preset = Literal["low-resource", "tiny", "mini", "small", "base", "big", "adapt"]
"""Presets of all tasks; ``registry.TASKS`` lists those of each task."""
LanguagePreset = Literal["tiny", "mini", "small", "base"]  #: presets for language models and fine-tuning
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
Direction = Literal["left-to-right", "right-to-left"]  #: reading directions of language models
