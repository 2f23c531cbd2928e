"""Torch-free training configuration: optimizer, limits, evaluation, checkpoints."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field, model_validator

OptimizerName = Literal["adamw", "muon"]
ScheduleName = Literal["constant", "inverse_sqrt", "noam", "cosine", "linear", "wsd", "plateau"]

MAX_COUNT = 10**15  #: maximum of any counter, exact as a float64

# By name, since tasks define their own metrics; new metrics for which lower is better must be added.
LOWER_IS_BETTER = frozenset({"loss", "detection_loss", "generator_loss", "nll", "perplexity", "ter", "error"})
"""Metrics for which lower is better; for every other metric (bleu, chrf, accuracy, ...), higher is better."""


class OptimizationConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Optimizer, learning-rate schedule and batch size."""

    optimizer: OptimizerName = "adamw"
    """``adamw`` (Loshchilov and Hutter 2019), or ``muon`` (Jordan et al. 2024) for the matrices of hidden layers beside
    AdamW for embeddings, output layers, biases, norms and position tables. Updates of both have the same size (Liu et
    al. 2025), so they share ``learning_rate`` and ``weight_decay``."""
    muon_momentum: float = Field(default=0.95, ge=0, lt=1)
    """Decay rate of Muon's running mean of the gradient, with Nesterov's correction."""
    # AdamW.
    learning_rate: float = Field(default=1e-3, gt=0, le=1e6)
    """Peak learning rate, which the schedule scales (for ``noam``, see ``schedule``)."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Decay rates of AdamW's running means of the gradient and its square, each at least 0 and below 1."""
    eps: float = Field(default=1e-8, gt=0, le=1)
    """Constant in AdamW's denominator that prevents division by zero."""
    weight_decay: float = Field(default=0.01, ge=0, le=1e6)
    """Decoupled weight decay of matrices; vectors (biases, norms) are never decayed."""
    # Over all ranks and micro-batches: the loop clips the accumulated gradient.
    clip_norm: float | None = Field(default=1.0, gt=0, le=1e9)
    """Maximum norm of the gradient over all parameters; a larger gradient is scaled down to it. Null: no clipping."""
    label_smoothing: float = Field(default=0.1, ge=0, lt=1)
    """Probability mass spread uniformly over the vocabulary instead of assigned to the gold token."""
    # Learning rate over time.
    schedule: ScheduleName = "cosine"
    """Learning-rate schedule after linear warmup over ``warmup_steps``: ``constant`` does not decay; ``inverse_sqrt``
    decays as 1/sqrt(step); ``cosine`` and ``linear`` decay to ``min_lr_ratio`` at the end; ``wsd`` is constant, then
    decays over the last ``decay_fraction``; ``plateau`` decays when the metric stops improving. ``noam`` is equation 3
    of Vaswani et al. 2017, where ``learning_rate`` replaces d_model**-0.5 and is not the peak."""
    warmup_steps: int = Field(default=400, ge=0, le=MAX_COUNT)
    """Steps over which the learning rate rises linearly from zero."""
    warmup_fraction: float = Field(default=1.0, gt=0, le=1)
    """Maximum share of the run spent on warmup, so that a short run does not consist of warmup only. Ignored by
    ``inverse_sqrt`` and ``noam``, whose warmup determines the rest of the schedule."""
    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    """Minimum learning rate of ``cosine``, ``linear``, ``wsd`` and ``plateau``, as a share of ``learning_rate``."""
    decay_fraction: float = Field(default=0.2, gt=0, le=1)
    """Share of the run, at its end, over which ``wsd`` decays the learning rate."""
    plateau_factor: float = Field(default=0.5, gt=0, lt=1)
    """Factor by which ``plateau`` multiplies the learning rate when ``limits.metric`` stops improving."""
    plateau_patience: int = Field(default=3, ge=1, le=MAX_COUNT)
    """Consecutive evaluations without improvement after which ``plateau`` lowers the learning rate."""
    # One step.
    gradient_accumulation_steps: int = Field(default=1, ge=1, le=1 << 16)
    """Number of micro-batches per step; more of them take less memory and give the same gradient."""
    batch_tokens: int = Field(default=4096, ge=1, le=1 << 30)
    """Source and target tokens per step over all micro-batches and ranks, including padding."""
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    """Decay per step of an exponential moving average of the weights, which is evaluated and saved. Null: off."""

    @model_validator(mode="after")
    def _check(self) -> OptimizationConfig:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError("betas must both be at least 0 and below 1")
        # Both schedules divide by the number of warmup steps.
        if self.schedule in ("inverse_sqrt", "noam") and self.warmup_steps == 0:
            raise ValueError(f"the schedule {self.schedule} needs warmup_steps of at least 1")
        return self


class LimitsConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Training limits, whichever is reached first; one of the first four is required."""

    # Whichever comes first.
    max_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Maximum number of optimizer steps."""
    max_epochs: float | None = Field(default=None, gt=0, le=1e6)
    """Maximum number of passes over the training data; 0.5 is half a pass."""
    max_tokens: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Maximum number of source and target tokens, without padding."""
    max_minutes: float | None = Field(default=None, gt=0, le=1e9)
    """Maximum wall time in minutes over all restarts, including evaluation. Such a run is not bit-reproducible."""
    early_stopping_patience: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Consecutive evaluations without improvement after which training also ends. Null: never."""
    metric: str = Field(default="bleu", min_length=1)
    """Metric for best checkpoints, early stopping and ``plateau``. Lower is better for ``loss``, ``detection_loss``,
    ``generator_loss``, ``nll``, ``perplexity``, ``ter`` and ``error``; higher is better for all others."""

    @model_validator(mode="after")
    def _check(self) -> LimitsConfig:
        if self.max_steps is None and self.max_epochs is None and self.max_tokens is None and self.max_minutes is None:
            raise ValueError("no limit set: set at least one of max_steps, max_epochs, max_tokens and max_minutes")
        return self

    @property
    def higher_is_better(self) -> bool:
        """Whether higher values of ``metric`` are better."""
        return self.metric not in LOWER_IS_BETTER


class EvaluationConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """When to evaluate on the validation set, in addition to the end of training."""

    # At most one of the two.
    every_steps: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Steps between evaluations. Null: see ``every_epochs``."""
    every_epochs: float | None = Field(default=None, gt=0, le=1e6)
    """Passes over the data between evaluations; 0.5 means twice per pass. Null: 1, unless ``every_steps`` is set."""
    n_samples: int = Field(default=3, ge=0, le=10_000)
    """Number of sentences shown with their translations at each evaluation."""

    @model_validator(mode="after")
    def _check(self) -> EvaluationConfig:
        if self.every_steps is not None and self.every_epochs is not None:
            raise ValueError("every_steps and every_epochs cannot be combined; set one")
        return self


class CheckpointConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Saving and retention of checkpoints."""

    save_every: int | None = Field(default=None, ge=1, le=MAX_COUNT)
    """Steps between checkpoints; one is also saved at each evaluation and at the end. Null: only these."""
    # Retention: a checkpoint is kept for any of these reasons.
    keep_last: int = Field(default=2, ge=1, le=MAX_COUNT)
    """Number of most recent checkpoints to keep."""
    keep_best: int = Field(default=1, ge=0, le=MAX_COUNT)
    """Number of checkpoints with the best ``limits.metric`` to keep."""
    average: int = Field(default=0, ge=0, le=MAX_COUNT)
    """Number of most recent checkpoints whose mean is also saved at the end; they are kept for it. 0: no mean."""


class TrainingConfig(BaseModel, frozen=True, extra="forbid", strict=True):
    """Training settings other than those of data and model."""

    limits: LimitsConfig
    """When training ends."""
    optimization: OptimizationConfig = OptimizationConfig()
    """Optimizer, schedule and batch."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """When to evaluate on the validation set."""
    checkpoints: CheckpointConfig = CheckpointConfig()
    """Checkpoints kept on disk."""
