"""The whole configuration of a translation run. Knows no torch, so that help and validation stay quick."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from attnkit.data.config import DataConfig
from attnkit.decoding.config import SearchConfig
from attnkit.models.config import ModelConfig
from attnkit.tasks.presets import Preset
from attnkit.text.config import VocabularyConfig
from attnkit.training.config import (
    CheckpointConfig,
    EvaluationConfig,
    LimitsConfig,
    OptimizationConfig,
    TrainingConfig,
)

METRICS = ("loss", "perplexity", "bleu", "chrf")
"""What evaluation reports, any of which can decide what is best."""


class TranslationConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Everything that decides a run; ``attnkit train --dry-run`` shows it with the origin of each value."""

    task: Literal["translation"] = "translation"
    """What kind of job this is."""
    preset: Preset | None = None
    """What chose the values that nobody gave: by this name a run that goes on chooses them again, whatever its text."""
    data: DataConfig
    """The files and what is dropped from them."""
    vocabulary: VocabularyConfig = VocabularyConfig()
    """How text becomes ids."""
    joint_vocabulary: bool = True
    """One vocabulary for both sides; needed for embeddings that are tied three ways."""
    vocabulary_files: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=2)
    """Vocabularies of ``attnkit vocab`` to use instead of building new ones: a joint one, or source and target."""
    model: ModelConfig
    """The architecture."""
    optimization: OptimizationConfig = OptimizationConfig()
    """Optimizer, schedule, batches, label smoothing."""
    limits: LimitsConfig
    """When to stop: whichever comes first."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How often the development set is scored."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    """What is kept on disk."""
    decoding: SearchConfig = SearchConfig()
    """The search, for the development set and as the default of ``translate``."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Decides initial weights, order, dropout and held-out pairs."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Working precision of training; the master weights are float32 always."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Threads of one operation; none leaves it to torch, or shares the CPUs among the processes of torchrun."""
    rank_timeout: float = Field(default=120.0, ge=1, le=604_800)
    """Seconds after which one of several processes is taken for dead that does not answer."""
    tensorboard: bool = False
    """Write event files for TensorBoard into the run folder (needs attnkit[tensorboard])."""

    @property
    def training(self) -> TrainingConfig:
        """The four parts that the training loop knows."""
        return TrainingConfig(
            limits=self.limits,
            optimization=self.optimization,
            evaluation=self.evaluation,
            checkpoints=self.checkpoints,
        )

    @property
    def max_source(self) -> int:
        """Most tokens of a line that is translated as one, its end not counted."""
        longest = self.model.longest
        return self.data.max_length if longest is None else min(self.data.max_length, longest - 1)

    @model_validator(mode="after")
    def _names_exist(self) -> TranslationConfig:
        if self.limits.metric not in METRICS:
            raise ValueError(f"limits.metric cannot be '{self.limits.metric}'; choose one of {', '.join(METRICS)}")
        joint = self.vocabulary_files is None or len(self.vocabulary_files) == 1
        if self.vocabulary_files is not None and joint != self.joint_vocabulary:
            raise ValueError("vocabulary_files names one file for a joint vocabulary, two for separate ones")
        return self

    @model_validator(mode="after")
    def _lengths_fit_the_positions(self) -> TranslationConfig:
        lines = f"lines of data.max_length={self.data.max_length} tokens"
        search, n_source = self.decoding, self.data.max_length + 1
        target = f"decoding.max_length={search.max_length}" if search.max_length else f"translations of {lines}"
        needs = {
            lines: n_source,
            target: search.limit(n_source),
            f"decoding.min_length={search.min_length}": search.min_length + 1,
        }
        what = max(needs, key=needs.__getitem__)
        if self.model.longest is not None and self.model.longest < needs[what]:
            raise ValueError(
                f"learned positions need model.max_length of {needs[what]} for {what}; raise the one or lower the other"
            )
        return self

    @model_validator(mode="after")
    def _vocabularies_fit_the_tying(self) -> TranslationConfig:
        if self.model.tied == "all" and not self.joint_vocabulary:
            raise ValueError("model.tied=all needs joint_vocabulary=true; use model.tied=target with two vocabularies")
        return self


FREE_TO_CHANGE = (
    *(f"limits.{name}" for name in ("steps", "epochs", "tokens", "minutes", "patience")),
    *("checkpoints.", "tensorboard", "evaluation.samples", "preset", "rank_timeout"),
)
"""Keys that a resumed run may have changed: limits, output, and a name whose choices are keys of their own. Anything
else would be another run; ``limits.metric`` too, since what was best by one metric says nothing about another."""
