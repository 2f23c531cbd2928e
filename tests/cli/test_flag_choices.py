"""The choices that flags offer are those of the keys they set."""

from __future__ import annotations

from importlib import import_module
from typing import Any, get_args, get_type_hints

import pytest

from attnkit.analysis.run_table import SortKey
from attnkit.conversion.export_ctranslate2 import Quantization
from attnkit.conversion.preflight import System
from attnkit.engine.registry import TASKS
from attnkit.engine.run_config import PRESETS
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.text.config import TrainedKind, VocabularyConfig


def choices(annotation: Any) -> set[str]:
    """Return the words among the arguments of a type, however deep they lie."""
    if isinstance(annotation, str):
        return {annotation}
    return {word for part in get_args(annotation) for word in choices(part)}


def key(config: Any, name: str) -> set[str]:
    return choices(config.model_fields[name].annotation)


MODELS = {
    choice
    for task in TASKS.values()
    for spec in (task, *task.variants.values())
    if "model" in spec.config.model_fields
    for model in get_args(spec.config.model_fields["model"].annotation)
    or [spec.config.model_fields["model"].annotation]
    for choice in key(model, "kind")
}
"""The kinds of models of all tasks."""


@pytest.mark.parametrize(
    ("command", "flag", "expected"),
    [
        ("train", "preset", {"auto", *PRESETS}),
        ("train", "task", set(TASKS)),
        ("train", "model", MODELS),
        ("train", "device", key(TranslationConfig, "device")),
        ("train", "precision", key(TranslationConfig, "precision")),
        ("translate", "device", key(TranslationConfig, "device")),
        ("score", "device", key(TranslationConfig, "device")),
        ("vocab", "kind", choices(TrainedKind)),
        ("vocab", "normalize", key(VocabularyConfig, "normalize")),
        ("export", "quantization", choices(Quantization)),
        ("export", "to", {*choices(System), "peft", "attnkit"}),
        ("check", "export_to", choices(System)),
        ("runs", "sort", choices(SortKey)),
    ],
)
def test_a_flag_offers_what_its_key_takes(command: str, flag: str, expected: set[str]) -> None:
    hints = get_type_hints(import_module(f"attnkit.cli.{command}").command)
    assert choices(hints[flag]) == expected
