"""Configurations and presets of the three fine-tuning tasks. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.data.config import QuestionsConfig, TaggedConfig, TextsConfig, WindowSizes
from attnkit.engine.run_config import RunConfig, with_rate
from attnkit.models.language_config import LANGUAGE_SIZES, BertConfig
from attnkit.models.limits import check_length
from attnkit.models.lora import LoraConfig, check_adapter
from attnkit.tasks.language_modeling.config import SCALES

DEFAULT_MAX_LENGTH = 512  #: default maximum number of tokens per row
LEARNING_RATES = {"tiny": 5e-4, "mini": 3e-4, "small": 2e-4, "base": 5e-5}


class FinetuningConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Initial weights, layer-wise learning rates and frozen layers."""

    from_scratch: bool = False
    """Use only the architecture and vocabulary of the initial run, not its weights."""
    layerwise_lr_decay: float = Field(default=0.9, gt=0, le=1)
    """Learning rate of each layer relative to the layer above it (Howard and Ruder 2018, section 3.2); the head is
    trained at ``learning_rate``. Ignored with ``from_scratch``."""
    freeze: tuple[Literal["embeddings", "layers"], ...] = ()
    """Parts of the encoder to freeze: embeddings, layers. The head is always trained."""
    freeze_layers: int = Field(default=0, ge=0)
    """Number of lowest layers to freeze, together with the embeddings. 0: freeze nothing."""


class LabelingConfig(FinetuningConfig, frozen=True):
    """Initial weights, layer-wise learning rates, frozen layers and class weights."""

    class_weights: Literal["none", "balanced"] = "none"
    """Balanced: weight each example by the inverse frequency of its label."""


class FinetuneConfig(RunConfig, frozen=True, extra="forbid", strict=True):
    """Configuration shared by all fine-tuning tasks."""

    model: BertConfig
    """The architecture; by default that of the initial run."""
    finetuning: FinetuningConfig = FinetuningConfig()
    """Initial weights, layer-wise learning rates and frozen layers."""
    adapter: LoraConfig | None = None
    """Adapters to train beside the head, instead of the weights of the encoder, e.g. ``adapter.kind=lora``. Null: train
    the weights."""

    @model_validator(mode="after")
    def _check_frozen_layers(self) -> FinetuneConfig:
        frozen, there = self.finetuning.freeze_layers, self.model.n_layers
        if frozen > there:
            raise ValueError(f"finetuning.freeze_layers={frozen}, but the model has {there} layers")
        for key in ("freeze", "freeze_layers"):
            if self.finetuning.from_scratch and getattr(self.finetuning, key):
                raise ValueError(f"finetuning.{key} cannot be combined with finetuning.from_scratch")
        return self

    @model_validator(mode="after")
    def _check_adapter(self) -> FinetuneConfig:
        settings = self.finetuning
        if self.adapter is not None and settings.from_scratch:
            raise ValueError(
                "adapters need a pretrained encoder: adapter cannot be combined with finetuning.from_scratch"
            )
        if self.adapter is not None and (settings.freeze or settings.freeze_layers):
            raise ValueError("adapters freeze the encoder: use adapter.maps instead of finetuning.freeze")
        check_adapter(self.adapter, self.model.kind, self.fsdp)
        return self

    @model_validator(mode="after")
    def _check_row_length(self) -> FinetuneConfig:
        questions = isinstance(self.data, QuestionsConfig)
        key, rows = ("data.windows.max_length", self.data.windows) if questions else ("data.max_length", self.data)
        if rows.max_length is not None:
            check_length(self.model, {f"{key}={rows.max_length}": rows.max_length}, "lower it")
        return self

    @property
    def lora(self) -> LoraConfig | None:
        """Return the settings of adapters, if any."""
        return self.adapter

    @property
    def max_row_length(self) -> int:
        """Return the maximum number of tokens per row."""
        most: int | None = self.data.max_length
        return most or min(DEFAULT_MAX_LENGTH, self.model.usual_length)


class TextClassificationConfig(FinetuneConfig, frozen=True):
    """Configuration of a text classification run."""

    task: Literal["text-classification"] = "text-classification"
    """The task."""
    data: TextsConfig
    """Texts and their labels."""
    finetuning: LabelingConfig = LabelingConfig()
    """Initial weights, layer-wise learning rates, frozen layers and class weights."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the evaluation metrics: ``loss`` in nats per text, the others in percent."""
        return ("loss", "accuracy", "macro_f1")


class TokenClassificationConfig(FinetuneConfig, frozen=True):
    """Configuration of a token classification run."""

    task: Literal["token-classification"] = "token-classification"
    """The task."""
    data: TaggedConfig
    """Words and their tags."""
    finetuning: LabelingConfig = LabelingConfig()
    """Initial weights, layer-wise learning rates, frozen layers and class weights."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the evaluation metrics: ``loss`` in nats per word, the others in percent.

        ``accuracy`` counts words; ``precision``, ``recall`` and ``f1`` count entities. If the tags name no entities,
        all four are word accuracy.
        """
        return ("loss", "accuracy", "precision", "recall", "f1")


class QuestionAnsweringConfig(FinetuneConfig, frozen=True):
    """Configuration of an extractive question-answering run."""

    task: Literal["question-answering"] = "question-answering"
    """The task."""
    data: QuestionsConfig
    """Questions, paragraphs and answers."""

    @model_validator(mode="after")
    def _check_windows(self) -> QuestionAnsweringConfig:
        self.data.windows.within(self.model.usual_length, self.model.separators)
        return self

    @property
    def windows(self) -> WindowSizes:
        """Return the maximum lengths of windows, questions and answers, and the stride."""
        return self.data.windows.within(self.model.usual_length, self.model.separators)

    @property
    def max_row_length(self) -> int:
        """Return the maximum number of tokens per row."""
        return self.windows.max_length

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the metrics: ``loss`` in nats per window, the others in percent.

        ``exact`` and ``f1`` follow the SQuAD scripts, version 2.0 if any question is unanswerable.
        """
        return ("loss", "exact", "f1")


def preset_for_encoder(model: Mapping[str, Any]) -> str:
    """Return the preset for an existing encoder, by its width."""
    width = model.get("d_model")
    sizes = {name: int(size["d_model"]) for name, size in LANGUAGE_SIZES["bert"].items()}
    fits = (name for name, most in sizes.items() if isinstance(width, int) and width <= most)
    return next(fits, "base")


def adjust_for_adapters(tree: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a preset with five times the learning rate if adapters are trained.

    A rule of thumb, as for translators; it is not measured for encoders.
    """
    return with_rate(tree, tree["optimization"]["learning_rate"], settings)


def _preset(name: str, kind: str, metric: str, epochs: float, max_tokens: int) -> dict[str, Any]:
    """Return the configuration tree of a preset."""
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


MIN_EXAMPLES = 10_000  #: texts or sentences that a classifier or tagger is shown at least, repetitions included, and
MAX_REPETITIONS = 50  #: the number of epochs that this may take


def lengthened(tree: dict[str, Any], n_examples: int) -> dict[str, Any]:
    """Return a preset with enough epochs to show ``MIN_EXAMPLES`` examples.

    Few epochs over few examples end before anything is learned (Mosbach et al. 2021; Zhang et al. 2021).
    """
    wanted = min(MAX_REPETITIONS, -(-MIN_EXAMPLES // max(1, n_examples)))
    epochs = max(tree["limits"]["max_epochs"], float(wanted))
    every = max(tree["evaluation"]["every_epochs"], epochs / 10)
    return {
        **tree,
        "limits": {**tree["limits"], "max_epochs": epochs},
        "evaluation": {**tree["evaluation"], "every_epochs": every},
    }


def lengthened_tagging(tree: dict[str, Any], n_lines: int) -> dict[str, Any]:
    """Return a lengthened preset for a file of one word per line.

    A sentence is taken to have ten words.
    """
    return lengthened(tree, n_lines // 10)


text_classification_preset = partial(_preset, metric="accuracy", epochs=5.0, max_tokens=1024)
token_classification_preset = partial(_preset, metric="f1", epochs=10.0, max_tokens=1024)
question_answering_preset = partial(_preset, metric="f1", epochs=3.0, max_tokens=4096)
