"""Torch-free inputs and outputs of the training loop: batches, steps, evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class StepBatches:
    """One global batch: the micro-batches of this rank, and counts over all ranks."""

    micro_batches: tuple[Any, ...]  #: micro-batches of this rank; may be empty
    n_padding_batches: int  #: last micro-batches with weight 0, which equalize the number of passes across ranks
    counts: Mapping[str, int]  #: divisor of each loss term, counted over all micro-batches and ranks
    n_tokens: int  #: input and target tokens of the global batch, including EOS but not padding
    epoch: float  #: epochs completed after this step


# Tuples of plain numbers, so that the caller can log them after the tensors of the step are freed.
class StepRecord(NamedTuple):
    """Record of one step, possibly skipped because of a non-finite loss or gradient."""

    step: int
    epoch: float
    loss: float  #: sum of weight * (reported sum / count) over the terms of the global batch
    learning_rate: float
    grad_norm: float  #: before clipping
    n_tokens: int  #: tokens of this step, without padding
    tokens: int  #: tokens so far, without padding
    progress: float  #: completed share of the run, by the nearest limit
    skipped: bool


class EvaluationRecord(NamedTuple):
    """Record of one evaluation on the validation set."""

    step: int
    epoch: float
    metrics: dict[str, float]
    improved: bool  #: whether ``limits.metric`` is the best so far
