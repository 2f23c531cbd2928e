"""The configurations of runs that put a pretrained encoder to work, and what their presets choose. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.data.config import QuestionsConfig, TaggedConfig, TextsConfig, WindowSizes
from attnkit.engine.run_config import RunConfig
from attnkit.models.language_config import LANGUAGE_SIZES, BertConfig
from attnkit.tasks.language_modeling.config import SCALES

DEFAULT_MAX_LENGTH = 512
"""Tokens of a row at most, where nobody asks for more."""
LEARNING_RATES = {"tiny": 5e-4, "mini": 3e-4, "small": 2e-4, "base": 5e-5}


class FinetuningConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """How weights that are there already are treated."""

    from_scratch: bool = False
    """Take the architecture and the vocabulary of the initial run, but none of its weights."""
    layerwise_lr_decay: float = Field(default=0.9, gt=0, le=1)
    """The learning rate of a layer is this times that of what lies above it (Howard and Ruder 2018, section 3.2), from
    the head, which has ``learning_rate``, down to the embeddings. Not for fresh weights, which all have that."""
    freeze_layers: int = Field(default=0, ge=0)
    """How many of the lowest layers stay as they are, and the embeddings with them; 0: nothing does."""


class LabelingConfig(FinetuningConfig, frozen=True):
    """The same where labels are learnt."""

    class_weights: Literal["none", "balanced"] = "none"
    """Balanced: an example counts the more in the loss the rarer its label is, so that all labels weigh the same."""


class FinetuneConfig(RunConfig, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """What the runs of a pretrained encoder have in common."""

    model: BertConfig
    """The architecture, that of the initial run."""
    finetuning: FinetuningConfig = FinetuningConfig()
    """What is done with weights that are there already."""

    @model_validator(mode="after")
    def _layers_are_there(self) -> FinetuneConfig:
        frozen, there = self.finetuning.freeze_layers, self.model.n_layers
        if frozen > there:
            raise ValueError(f"finetuning.freeze_layers={frozen} of {there} layers")
        if frozen and self.finetuning.from_scratch:
            raise ValueError("finetuning.freeze_layers beside finetuning.from_scratch: fresh weights have to learn")
        return self

    @property
    def max_row_length(self) -> int:
        """Return the most tokens of a row."""
        most: int | None = self.data.max_length
        return most or min(DEFAULT_MAX_LENGTH, self.model.usual_length)

    def check_length(self, key: str, given: int | None) -> None:
        """Raise ``ValueError`` where a key asks for rows that are longer than the model has positions."""
        if given is not None and self.model.max_positions is not None and given > self.model.max_positions:
            raise ValueError(f"{self.model.length_limit_reason} of {given} for {key}={given}; lower it")


class TextClassificationConfig(FinetuneConfig, frozen=True):
    """Everything that decides the run of a classifier of texts."""

    task: Literal["text-classification"] = "text-classification"
    """What kind of job this is."""
    data: TextsConfig
    """Texts and their labels."""
    finetuning: LabelingConfig = LabelingConfig()
    """What is done with weights that are there already, and how labels are weighed."""

    @model_validator(mode="after")
    def _rows_fit_the_positions(self) -> TextClassificationConfig:
        self.check_length("data.max_length", self.data.max_length)
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of what evaluation reports: ``loss`` in nats a text, the others in percent."""
        return ("loss", "accuracy", "macro_f1")


class TokenClassificationConfig(FinetuneConfig, frozen=True):
    """Everything that decides the run of a tagger."""

    task: Literal["token-classification"] = "token-classification"
    """What kind of job this is."""
    data: TaggedConfig
    """Words and their tags."""
    finetuning: LabelingConfig = LabelingConfig()
    """What is done with weights that are there already, and how tags are weighed."""

    @model_validator(mode="after")
    def _rows_fit_the_positions(self) -> TokenClassificationConfig:
        self.check_length("data.max_length", self.data.max_length)
        return self

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of what evaluation reports: ``loss`` in nats a word, the others in percent.

        ``accuracy`` is of words; ``precision``, ``recall`` and ``f1`` are of whole entities, and where tags name none
        all are accuracy.
        """
        return ("loss", "accuracy", "precision", "recall", "f1")


class QuestionAnsweringConfig(FinetuneConfig, frozen=True):
    """Everything that decides the run of a reader that finds answers."""

    task: Literal["question-answering"] = "question-answering"
    """What kind of job this is."""
    data: QuestionsConfig
    """Questions, paragraphs and answers."""

    @model_validator(mode="after")
    def _rows_fit_the_positions(self) -> QuestionAnsweringConfig:
        self.check_length("data.windows.max_length", self.data.windows.max_length)
        self.data.windows.within(self.model.usual_length, self.model.separators)
        return self

    @property
    def windows(self) -> WindowSizes:
        """Return how long what is read of a context is."""
        return self.data.windows.within(self.model.usual_length, self.model.separators)

    @property
    def max_row_length(self) -> int:
        """Return the most tokens of a row."""
        return self.windows.max_length

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of what evaluation reports: ``loss`` in nats a window, the others in percent.

        ``exact`` and ``f1`` are those of SQuAD's scripts, of version 2.0 where a question has no answer.
        """
        return ("loss", "exact", "f1")


def finetune_kind(given: Mapping[str, Any]) -> str:
    """Return the kind of model where nobody said it."""
    return "bert"


def preset_for_encoder(model: Mapping[str, Any]) -> str:
    """Return the preset for an encoder that is there already, by its width."""
    width = model.get("d_model")
    sizes = {name: int(size["d_model"]) for name, size in LANGUAGE_SIZES["bert"].items()}
    fits = (name for name, most in sizes.items() if isinstance(width, int) and width <= most)
    return next(fits, "base")


def text_classification_preset(name: str, kind: str) -> dict[str, Any]:
    """Return the configuration tree of a preset."""
    return _preset(name, kind, "accuracy", epochs=5.0, max_tokens=1024)


def token_classification_preset(name: str, kind: str) -> dict[str, Any]:
    """Return the configuration tree of a preset."""
    return _preset(name, kind, "f1", epochs=10.0, max_tokens=1024)


def question_answering_preset(name: str, kind: str) -> dict[str, Any]:
    """Return the configuration tree of a preset."""
    return _preset(name, kind, "f1", epochs=3.0, max_tokens=4096)


def _preset(name: str, kind: str, metric: str, epochs: float, max_tokens: int) -> dict[str, Any]:
    sizes = LANGUAGE_SIZES["bert"].get(name, {}) if kind == "bert" else {}
    return {
        "vocabulary": SCALES[name]["vocabulary"],
        "optimization": {
            "learning_rate": LEARNING_RATES[name],
            "schedule": "linear",
            "warmup_steps": 1000,
            "warmup_fraction": 0.1,
            "batch_tokens": max_tokens,
            "label_smoothing": 0.0,
        },
        "limits": {"max_epochs": epochs, "metric": metric},
        "evaluation": {"every_epochs": 1.0},
        "model": {"kind": kind, **sizes},
    }
