"""Records that the training loop yields. Torch-free."""

from __future__ import annotations

from typing import NamedTuple


# Tuples of plain numbers: the caller may log them after the tensors of the step are gone.
class StepRecord(NamedTuple):
    """One step that was taken, or skipped because a number was not finite."""

    step: int
    epoch: float
    loss: float  #: sum of weight * (reported sum / count) over the terms of the global batch
    learning_rate: float
    grad_norm: float  #: before clipping
    n_tokens: int  #: real tokens of this step
    tokens: int  #: real tokens so far
    progress: float  #: share of the run done, by the nearest limit
    skipped: bool


class EvaluationRecord(NamedTuple):
    """One look at the validation set."""

    step: int
    epoch: float
    metrics: dict[str, float]
    improved: bool  #: whether ``limits.metric`` is the best so far
