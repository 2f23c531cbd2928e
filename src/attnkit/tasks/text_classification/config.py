"""Configuration and presets of document classifiers. Torch-free."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from attnkit.data.config import DocumentsConfig
from attnkit.engine.run_config import SCALES, RunConfig
from attnkit.models.limits import check_length
from attnkit.models.recurrent_config import HAN_SIZES, HanConfig

EPOCHS = {"tiny": 30.0, "small": 15.0, "base": 10.0, "big": 5.0}


class HanClassificationConfig(RunConfig, frozen=True, extra="forbid", strict=True):
    """Configuration of a document classification run."""

    task: Literal["text-classification"] = "text-classification"
    """The task."""
    data: DocumentsConfig
    """Documents and their labels."""
    model: HanConfig
    """The architecture."""

    @model_validator(mode="after")
    def _lengths_fit_the_positions(self) -> HanClassificationConfig:
        needs = {
            f"sentences of data.max_length={self.data.max_length} tokens": self.data.max_length,
            f"documents of data.max_sentences={self.data.max_sentences} sentences": self.data.max_sentences,
        }
        check_length(self.model, needs)
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics: ``loss`` in nats per document, the others in percent."""
        return ("loss", "accuracy", "macro_f1")


def han_preset(name: str, kind: str) -> dict[str, Any]:
    """Return the configuration tree of a preset: lower-cased words and few epochs."""
    scale = SCALES[name]
    return {
        **scale,
        "vocabulary": {**scale["vocabulary"], "kind": "word", "lowercase": True},
        "optimization": {
            "learning_rate": 2e-3,
            "schedule": "cosine",
            "warmup_steps": 100,
            "warmup_fraction": 0.2,
            "batch_tokens": 4 * scale["optimization"]["batch_tokens"],
            "label_smoothing": 0.0,
        },
        "limits": {"max_epochs": EPOCHS[name], "metric": "accuracy"},
        "evaluation": {"every_epochs": 1.0},
        "checkpoints": {},
        "model": {"kind": kind, **(HAN_SIZES.get(name, {}) if kind == "han" else {})},
    }
