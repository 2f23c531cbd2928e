"""Base of all tasks' configurations: presets, limits, files and preserved keys. Torch-free."""

from __future__ import annotations

import math
from typing import Any, Literal, Protocol, get_args

from pydantic import BaseModel, Field, model_validator

from attnkit.engine.names import Preset
from attnkit.models.config import SIZES
from attnkit.text.config import VocabularyConfig
from attnkit.training.config import CheckpointConfig, EvaluationConfig, LimitsConfig, OptimizationConfig, TrainingConfig

Tree = dict[str, Any]

PresetThresholds = tuple[tuple[float, str], ...]  #: (number of lines, exclusive; preset), ascending
AUTO: PresetThresholds = ((20_000, "tiny"), (300_000, "small"), (4_000_000, "base"), (math.inf, "big"))
LANGUAGE_AUTO: PresetThresholds = ((20_000, "tiny"), (2_000_000, "mini"), (20_000_000, "small"), (math.inf, "base"))
"""Thresholds of language models and of fine-tuning."""

_DECAY = {"schedule": "cosine", "warmup_fraction": 0.2}
_INVERSE_SQRT = {"schedule": "inverse_sqrt", "learning_rate": 7e-4, "warmup_steps": 4000}
# Settings by corpus size; sizes of models are in models.config.SIZES.
SCALES: dict[str, Tree] = {
    "tiny": {
        "vocabulary": {"size": 4000},
        "optimization": _DECAY | {"learning_rate": 2e-3, "warmup_steps": 200, "batch_tokens": 3000, "ema_decay": 0.995},
        "limits": {"max_epochs": 30.0},
        "evaluation": {"every_epochs": 2.0},
    },
    "small": {
        "vocabulary": {"size": 8000},
        "optimization": _DECAY | {"learning_rate": 1e-3, "warmup_steps": 500, "batch_tokens": 4096, "ema_decay": 0.999},
        "limits": {"max_epochs": 30.0},
        "evaluation": {"every_epochs": 2.0},
    },
    "base": {
        "vocabulary": {"size": 16000},
        "optimization": {**_INVERSE_SQRT, "batch_tokens": 16384},
        "limits": {"max_steps": 100_000},
        "evaluation": {"every_steps": 2000},
        "checkpoints": {"average": 5},
    },
    "big": {
        "vocabulary": {"size": 32000},
        "optimization": {**_INVERSE_SQRT, "batch_tokens": 65536, "gradient_accumulation_steps": 4},
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


# Recurrent loops and documents of any shape would be compiled again and again.
COMPILABLE_MODELS = ("transformer", "bert", "gpt")  #: Kinds of models whose layers can be compiled


# A protocol: word2vec's configuration has none of the sections that gradient training needs.
class RunSettings(Protocol):
    """Protocol of a task's configuration, as the engine reads it."""

    @property
    def task(self) -> str: ...

    @property
    def model_kind(self) -> str: ...

    @property
    def data(self) -> Any: ...

    @property
    def limits(self) -> LimitsConfig: ...

    @property
    def checkpoints(self) -> CheckpointConfig: ...

    @property
    def metrics(self) -> tuple[str, ...]: ...

    @property
    def resumable_keys(self) -> tuple[str, ...]: ...

    def model_dump(self, *, mode: str = "python") -> dict[str, Any]: ...


class RunConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Everything that decides a run, whatever its task; ``attnkit train --dry-run`` shows it."""

    task: str
    """Task of the run."""
    preset: Preset | None = None
    """Preset of the values that were not given; a resumed run keeps it."""
    # What to train, on what.
    data: Any
    """The files and what is dropped from them."""
    # From text to ids.
    vocabulary: VocabularyConfig = VocabularyConfig()
    """Vocabulary: from text to ids."""
    vocabulary_files: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=1)
    """A vocabulary of ``attnkit vocab`` to use instead of building a new one."""
    model: Any
    """The architecture."""
    # How to train.
    optimization: OptimizationConfig = OptimizationConfig()
    """Optimizer, schedule, batches, label smoothing."""
    limits: LimitsConfig
    """When to stop: whichever comes first."""
    # What is measured and kept.
    evaluation: EvaluationConfig = EvaluationConfig()
    """Evaluation on the development set."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    """Checkpoints kept on disk."""
    # Where and with what arithmetic.
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Decides initial weights, order, dropout and held-out lines."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device for training; auto: CUDA if there is one, else the CPU."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Working precision of training; the master weights are always float32."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads per operation; none: torch's default, or an equal share of the CPUs per torchrun process."""
    # Several processes.
    rank_timeout: float = Field(default=120.0, ge=1, le=604_800)
    """Seconds after which one of several processes is taken for dead that does not answer."""
    fsdp: bool = False
    """Let each process of torchrun hold a share of weights, gradients and moments (FSDP2), rather than all of them:
    less memory, more to exchange. What is saved is the same."""
    torch_compile: bool = False
    """Compile the model's layers when they first compute (torch.compile): half a minute that pays on a GPU."""
    # Output.
    tensorboard: bool = False
    """Write event files for TensorBoard into the run folder (needs attnkit[tensorboard])."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of what evaluation reports; any of them can decide what is best."""
        raise NotImplementedError

    @property
    def model_kind(self) -> str:
        """Kind of model, e.g. ``transformer``."""
        return str(self.model.kind)

    @property
    def resumable_keys(self) -> tuple[str, ...]:
        """Prefixes of the dotted keys that a resumed run may have changed."""
        return RESUMABLE_KEYS

    @property
    def training(self) -> TrainingConfig:
        """Settings of the training loop: optimization, limits, evaluation and checkpoints."""
        return TrainingConfig(
            limits=self.limits, optimization=self.optimization, evaluation=self.evaluation, checkpoints=self.checkpoints
        )

    @model_validator(mode="after")
    def _fits_model_and_task(self) -> RunConfig:
        if self.torch_compile and self.model.kind not in COMPILABLE_MODELS:
            raise ValueError(f"torch_compile supports the models {', '.join(COMPILABLE_MODELS)}, not {self.model.kind}")
        if self.limits.metric not in self.metrics:
            raise ValueError(f"limits.metric cannot be '{self.limits.metric}'; choose one of {', '.join(self.metrics)}")
        return self


RESUMABLE_KEYS = (
    *(f"limits.{name}" for name in ("max_steps", "max_epochs", "max_tokens", "max_minutes", "early_stopping_patience")),
    *("checkpoints.", "tensorboard", "evaluation.n_samples", "preset", "rank_timeout", "fsdp", "torch_compile"),
)
"""Keys that a resumed run may have changed: limits, output, and a name whose choices are keys of their own. Anything
else would be another run; ``limits.metric`` too, since what was best by one metric says nothing about another."""
