"""Input and output records of the training loop: step batches, step and evaluation records. Torch-free."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class StepBatches:
    """One global batch, split into micro-batches over time and over ranks: this rank's share, counts of the whole."""

    micro_batches: tuple[Any, ...]  #: of this rank, perhaps none
    n_padding_batches: int  #: last micro-batches with weight 0, which keep the number of passes equal on all ranks
    counts: Mapping[str, int]  #: divisor of each loss term, counted over all micro-batches and ranks
    n_tokens: int  #: real input and target tokens of the global batch, end symbols included
    epoch: float  #: epochs completed after this step


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
