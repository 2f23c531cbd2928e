"""What training accepts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pydantic import BaseModel, ValidationError

from attnkit.config.descriptions import describe_fields
from attnkit.training import config as module
from attnkit.training.config import LimitsConfig, OptimizationConfig, TrainingConfig


def test_a_run_needs_an_end() -> None:
    with pytest.raises(ValidationError, match="set at least one of max_steps, max_epochs, max_tokens and max_minutes"):
        TrainingConfig.model_validate_json('{"limits": {"early_stopping_patience": 3}}')
    assert TrainingConfig.model_validate_json('{"limits": {"max_epochs": 1}}').limits.max_epochs == 1


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("optimization", {"betas": [0.9, 1.0]}, "betas must both"),
        ("optimization", {"schedule": "noam", "warmup_steps": 0}, "noam needs warmup_steps"),
        ("optimization", {"learning_rate": 0}, "greater than 0"),
        ("optimization", {"learning_rate": "fast"}, "valid number"),
        ("optimization", {"learning_rte": 1}, "Extra inputs"),
        ("evaluation", {"every_steps": 5, "every_epochs": 1}, "cannot be combined"),
        ("limits", {"max_steps": 1.5}, "valid integer"),
    ],
)
def test_refuses(part: str, value: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TrainingConfig.model_validate_json(json.dumps({"limits": {"max_steps": 1}} | {part: value}))


def test_infinity_is_no_learning_rate() -> None:
    for text in ("Infinity", "NaN"):
        with pytest.raises(ValidationError):
            OptimizationConfig.model_validate_json(f'{{"learning_rate": {text}}}')


def test_direction_follows_from_the_name() -> None:
    rising = {
        m: LimitsConfig(max_steps=1, metric=m).higher_is_better
        for m in ("bleu", "chrf", "accuracy", "loss", "perplexity")
    }
    assert rising == {"bleu": True, "chrf": True, "accuracy": True, "loss": False, "perplexity": False}


def test_every_field_says_what_it_is() -> None:
    models = [
        m for m in vars(module).values() if isinstance(m, type) and issubclass(m, BaseModel) and m is not BaseModel
    ]
    assert len(models) == 5
    silent = [f"{m.__name__}.{name}" for m in models for name in m.model_fields if not describe_fields(m).get(name)]
    assert silent == []


def test_configuration_needs_no_torch() -> None:
    code = "import sys, attnkit.training.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
