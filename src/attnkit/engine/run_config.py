"""Base of task configurations: presets, sections, resumable keys. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol, get_args

from pydantic import BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from attnkit.engine.names import Preset
from attnkit.models.config import SIZES
from attnkit.models.lora import LoraConfig
from attnkit.text.config import VocabularyConfig
from attnkit.training.config import CheckpointConfig, EvaluationConfig, LimitsConfig, OptimizationConfig, TrainingConfig

Tree = dict[str, Any]

PresetThresholds = tuple[tuple[float, str], ...]  #: (exclusive number of lines, preset), ascending
AUTO: PresetThresholds = ((20_000, "tiny"), (300_000, "small"), (4_000_000, "base"), (math.inf, "big"))
TRANSLATION_AUTO: PresetThresholds = ((5_000, "low-resource"), *AUTO)
LANGUAGE_AUTO: PresetThresholds = ((20_000, "tiny"), (2_000_000, "mini"), (20_000_000, "small"), (math.inf, "base"))
"""Thresholds for language models and fine-tuning."""

_DECAY = {"schedule": "cosine", "warmup_fraction": 0.2}
_INVERSE_SQRT = {"schedule": "inverse_sqrt", "learning_rate": 7e-4, "warmup_steps": 4000}
# Settings by corpus size; model sizes are in models.config.SIZES.
SCALES: dict[str, Tree] = {
    # Small batches, and many epochs of them: docs/log/2026-11-30-low-resource.md.
    "low-resource": {
        "vocabulary": {"size": 4000},
        "optimization": _DECAY | {"learning_rate": 1e-3, "warmup_steps": 200, "batch_tokens": 1000, "ema_decay": 0.998},
        "limits": {"max_epochs": 80.0},
        "evaluation": {"every_epochs": 4.0},
    },
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
    # Of a run with initial weights of its own task: short, with small steps; ``adjust_init_path`` sets the rate.
    "adapt": {
        "optimization": {"schedule": "linear", "warmup_steps": 100, "warmup_fraction": 0.1, "batch_tokens": 2048},
        "limits": {"max_epochs": 10.0, "early_stopping_patience": 3},
        "evaluation": {"every_epochs": 1.0},
    },
}


ADAPTER_RATE = 5  #: learning rate of adapters, which start from zero, in that of all weights

# What is added for a kind of model: docs/log/2026-11-30-muon.md (recurrent models were not tried with it).
_ADDED: dict[tuple[str, str], dict[str, Tree]] = {
    ("low-resource", "transformer"): {
        "optimization": {"optimizer": "muon", "learning_rate": 4e-3},
        "regularization": {"r_drop": 5.0},
    }
}


def adjust_adapting(tree: Tree, settings: Mapping[str, Any]) -> Tree:
    """Return the preset of adapted runs with a learning rate for the width.

    Wide models take smaller steps; adapters, which start from zero, larger ones.
    """
    model = settings.get("model")
    width = model.get("d_model") if isinstance(model, Mapping) else None
    rate = 0.064 / (width if isinstance(width, int) and width > 0 else 256)
    return with_rate(tree, rate, settings)


def with_rate(tree: Tree, rate: float, settings: Mapping[str, Any]) -> Tree:
    """Return a preset with a learning rate, times that of adapters if it has any."""
    rate *= ADAPTER_RATE if settings.get("adapter") else 1
    return {**tree, "optimization": {**tree["optimization"], "learning_rate": float(f"{rate:.2g}")}}


PRESETS: tuple[str, ...] = get_args(Preset)


def choose(n_rows: int, thresholds: PresetThresholds = AUTO) -> str:
    """Return the preset for a number of sentence pairs, rows or lines."""
    return next(name for most, name in thresholds if n_rows < most)


def preset(name: str, kind: str) -> Tree:
    """Return the configuration of a preset; model sizes only for known kinds."""
    tree = {**SCALES[name], "model": {"kind": kind, **SIZES.get(kind, {}).get(name, {})}}
    return tree | {section: tree.get(section, {}) | own for section, own in _ADDED.get((name, kind), {}).items()}


# Recurrent loops and documents of varying shapes would be recompiled again and again.
COMPILABLE_MODELS = ("transformer", "bert", "gpt")  #: kinds of models whose layers can be compiled


# A protocol, as word2vec's configuration lacks the sections of gradient-based training.
class RunSettings(Protocol):
    """Protocol for the parts of a task's configuration that the engine reads."""

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


class RunConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Settings of a run of any task, as shown by ``attnkit train --dry-run``."""

    task: str
    """Task of the run."""
    preset: Preset | None = None
    """Preset that provides the values that are not set; a resumed run keeps it."""
    # Data.
    data: Any
    """Input files and how their examples are filtered."""
    # Vocabulary and model.
    vocabulary: VocabularyConfig = VocabularyConfig()
    """Vocabulary that maps text to ids."""
    vocabulary_files: tuple[str, ...] | None = Field(default=None, min_length=1, max_length=1)
    """Vocabulary file of ``attnkit vocab`` to use instead of building a new vocabulary."""
    model: Any
    """Architecture of the model."""
    # Training.
    optimization: OptimizationConfig = OptimizationConfig()
    """Optimizer, schedule, batches, label smoothing."""
    limits: LimitsConfig
    """Limits of training; the first limit reached ends the run."""
    # Evaluation and checkpoints.
    evaluation: EvaluationConfig = EvaluationConfig()
    """Evaluation on the development set."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    """Saving, retention and averaging of checkpoints."""
    # Seed and hardware.
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Random seed of initial weights, data order, dropout and held-out lines."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device for training; auto: CUDA if available, else the CPU."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Working precision of training; the master weights are always float32."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """CPU threads per operation; null: torch's default, or an equal share of the CPUs per torchrun process."""
    # Distributed training and compilation.
    rank_timeout: float = Field(default=120.0, ge=1, le=604_800)
    """Seconds after which an unresponsive process of a distributed run is considered dead."""
    fsdp: bool = False
    """Shard weights, gradients and optimizer moments over the processes of torchrun (FSDP2): less memory, more
    communication. Checkpoints are the same as without sharding."""
    torch_compile: bool = False
    """Compile the model's layers on first use (torch.compile); takes half a minute, worthwhile on a GPU."""
    # Output.
    tensorboard: bool = False
    """Write TensorBoard event files into the run folder (needs attnkit[tensorboard])."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the evaluation metrics; any of them can select the best checkpoint."""
        raise NotImplementedError

    @property
    def model_kind(self) -> str:
        """Kind of model, e.g. ``transformer``."""
        return str(self.model.kind)

    @property
    def resumable_keys(self) -> tuple[str, ...]:
        """Prefixes of the dotted keys that may change when a run is resumed."""
        return RESUMABLE_KEYS

    @property
    def usage(self) -> tuple[str, ...]:
        """Command that uses the run, and its options; empty: that of the task."""
        return ()

    @property
    def lora(self) -> LoraConfig | None:
        """Adapters that are trained instead of the weights; None: the weights are trained."""
        return None

    @property
    def n_passes(self) -> int:
        """Number of passes over a batch in a step."""
        return 1

    @property
    def activation_floats_per_token(self) -> float:
        """Estimated floats that are saved for backward per token."""
        return float(self.model.activation_floats_per_token)

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
        if self.optimization.optimizer == "muon":
            # A rank's shard of a matrix does not determine its update, and adapters are products of two thin matrices.
            lora = self.lora is not None
            for key, is_set, off in (("fsdp", self.fsdp, "set fsdp=false"), ("adapter", lora, "leave out the adapter")):
                if is_set:
                    what = f"optimization.optimizer=muon cannot be combined with {key}"
                    help = f"set optimization.optimizer=adamw, or {off}"
                    raise PydanticCustomError("muon", "{what}", {"what": what, "help": help})
        if self.limits.metric not in self.metrics:
            raise ValueError(f"limits.metric cannot be '{self.limits.metric}'; choose one of {', '.join(self.metrics)}")
        return self


RESUMABLE_KEYS = (
    *(f"limits.{name}" for name in ("max_steps", "max_epochs", "max_tokens", "max_minutes", "early_stopping_patience")),
    *("checkpoints.", "tensorboard", "evaluation.n_samples", "preset", "rank_timeout", "fsdp", "torch_compile"),
)
"""Keys that may change when a run is resumed: limits, output, execution, and the preset, whose settings have keys of
their own. Other changes need a new run, even that of ``limits.metric``: scores of different metrics do not compare."""
