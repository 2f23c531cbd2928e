"""Training configuration: optimizer, schedule, limits, evaluation and checkpoints. Torch-free."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

ScheduleName = Literal["constant", "inverse_sqrt", "noam", "cosine", "linear", "wsd", "plateau"]

MAX_COUNT = 10**15  #: maximum of any counter, exact as a float64

# By name, since tasks bring metrics of their own; a new falling metric must be added.
LOWER_IS_BETTER = frozenset({"loss", "nll", "perplexity", "ter", "error"})
"""Metrics that improve by falling; every other metric (bleu, chrf, accuracy, ...) improves by rising."""


class OptimizationConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """AdamW (Loshchilov and Hutter 2019), learning-rate schedule and batch composition of a step."""

    # AdamW.
    learning_rate: float = Field(default=1e-3, gt=0, le=1e6)
    """Learning rate that the schedule scales: its highest value (for ``noam`` see ``schedule``)."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay of AdamW's running means of the gradient and of its square, each at least 0 and below 1."""
    eps: float = Field(default=1e-8, gt=0, le=1)
    """AdamW's guard against division by zero."""
    weight_decay: float = Field(default=0.01, ge=0, le=1e6)
    """Decoupled weight decay of matrices; vectors (biases, norms) are never decayed."""
    # Over all ranks and micro-batches: the loop clips the gradient that it applies.
    clip_norm: float | None = Field(default=1.0, gt=0, le=1e9)
    """Gradients with a larger norm over all parameters are scaled down to it. Null: no clipping."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Probability mass spread evenly over the vocabulary instead of given to the right token."""
    # Learning rate over time.
    schedule: ScheduleName = "cosine"
    """Shape of the learning rate. After a linear rise over ``warmup_steps``: ``constant``; ``inverse_sqrt`` falls as
    1/sqrt(step); ``cosine`` and ``linear`` fall to ``min_lr_ratio`` at the end; ``wsd`` stays, then falls over the
    last ``decay_fraction``; ``plateau`` falls when the metric stalls. ``noam`` is equation 3 of Vaswani et al. 2017,
    where ``learning_rate`` replaces d_model**-0.5 and is not the highest value."""
    warmup_steps: int = Field(default=400, ge=0, le=MAX_COUNT)
    """Steps over which the learning rate rises linearly from zero."""
    warmup_fraction: float = Field(default=1.0, gt=0, le=1)
    """Maximum share of the run spent on warmup, so that a short run is not all warmup. Not for
    ``inverse_sqrt`` and ``noam``, whose warmup determines the rest of the schedule."""
    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    """Lowest learning rate of ``cosine``, ``linear``, ``wsd`` and ``plateau``, as a share of ``learning_rate``."""
    decay_fraction: float = Field(default=0.2, gt=0, le=1)
    """Share of the run, at its end, in which ``wsd`` lets the learning rate fall."""
    plateau_factor: float = Field(default=0.5, gt=0, lt=1)
    """Factor of the learning rate when ``limits.metric`` stalls (``plateau``)."""
    plateau_patience: int = Field(default=3, ge=1, le=MAX_COUNT)
    """Evaluations in a row without improvement after which ``plateau`` lowers the learning rate."""
    # One step.
    gradient_accumulation_steps: int = Field(default=1, ge=1, le=1 << 16)
    """Micro-batches that a step is split into: less memory, the same gradient."""
    batch_tokens: int = Field(default=4096, ge=1, le=1 << 30)
    """Source and target tokens of one step, padding included, over all micro-batches and ranks together."""
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    """Evaluate and save an exponential moving average of the weights with this decay per step. Null: off."""

    @model_validator(mode="after")
    def _check(self) -> OptimizationConfig:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError("betas must both be at least 0 and below 1")
        # Both divide by the warmup.
        if self.schedule in ("inverse_sqrt", "noam") and self.warmup_steps == 0:
            raise ValueError(f"the schedule {self.schedule} needs warmup_steps of at least 1")
        return self


class LimitsConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Limits that end training, whichever is reached first. At least one of the first four is required."""

    # Whichever comes first.
    max_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Maximum optimizer steps."""
    max_epochs: float | None = Field(default=None, gt=0, le=1e6)
    """Maximum passes over the training data; 0.5 is half a pass."""
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Maximum source and target tokens, without padding."""
    max_minutes: float | None = Field(default=None, gt=0, le=1e9)
    """Maximum minutes of wall time over all restarts, evaluation included. Such a run is not bit-reproducible."""
    early_stopping_patience: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Also end after this many evaluations in a row without improvement. Null: never."""
    metric: str = Field(default="bleu", min_length=1)
    """Metric that decides what is best, what is a stall and when patience ends. ``loss``, ``nll``, ``perplexity``,
    ``ter`` and ``error`` improve by falling, all others by rising."""

    @model_validator(mode="after")
    def _check(self) -> LimitsConfig:
        if self.max_steps is None and self.max_epochs is None and self.max_tokens is None and self.max_minutes is None:
            raise ValueError("no limit set: set at least one of max_steps, max_epochs, max_tokens and max_minutes")
        return self

    @property
    def higher_is_better(self) -> bool:
        """Whether ``metric`` improves by rising."""
        return self.metric not in LOWER_IS_BETTER


class EvaluationConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """When to evaluate on the validation set; always also at the end."""

    # One of the two.
    every_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Evaluate after every so many steps. Null: see ``every_epochs``."""
    every_epochs: float | None = Field(default=None, gt=0, le=1e6)
    """Evaluate after every so many passes over the data; 0.5 is twice a pass. Null with ``every_steps`` null: 1."""
    n_samples: int = Field(default=3, ge=0, le=10_000)
    """Sentences shown with their translations at each evaluation."""

    @model_validator(mode="after")
    def _check(self) -> EvaluationConfig:
        if self.every_steps is not None and self.every_epochs is not None:
            raise ValueError("every_steps and every_epochs cannot be combined; set one")
        return self


class CheckpointConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Which checkpoints are saved and kept."""

    save_every: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Save after every so many steps, besides at every evaluation and at the end. Null: only then."""
    # Retention: a checkpoint stays for any of these reasons.
    keep_last: int = Field(default=2, ge=1, le=MAX_COUNT)
    """Newest checkpoints that are kept."""
    keep_best: int = Field(default=1, ge=0, le=MAX_COUNT)
    """Checkpoints kept for having the best ``limits.metric``."""
    average: int = Field(default=0, ge=0, le=MAX_COUNT)
    """At the end also save the mean of this many of the newest checkpoints, which are kept for it. 0: do not."""


class TrainingConfig(BaseModel, frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True):
    """Training settings other than data and model."""

    limits: LimitsConfig
    """When training ends."""
    optimization: OptimizationConfig = OptimizationConfig()
    """Optimizer, schedule and batch."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """When to evaluate on the validation set."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    """Checkpoints kept on disk."""
