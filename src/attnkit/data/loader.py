"""Training batches as a pure function of the data position; inference batches."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from attnkit.data.batch_plan import EpochPlan, plan_epoch, split
from attnkit.data.permutation import Ids, Integers, Words
from attnkit.errors import DataError, RunError
from attnkit.training.records import StepBatches

Sampler = Callable[[int, int], Words | None]
"""(seed, epoch) -> indices of an epoch, possibly repeated; None: every example once."""
DatasetSchedule = Callable[[float], "Dataset"]
"""Completed share of the run in [0, 1] -> the same examples as they are read then."""
Batch = TypeVar("Batch", bound="TensorBatch")


class Dataset(Protocol):
    """Indexed training examples of a task."""

    @property
    def lengths(self) -> tuple[Integers, Integers]:
        """Return the input and target tokens of each example, (n,) each."""

    def batch(self, indices: Ids, seed: int, epoch: int) -> Any:
        """Return the examples at ``indices`` (at least one) as a batch for the loss."""

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        """Return the divisor of each loss term for the examples at ``indices``."""


@dataclass(frozen=True)
class TensorBatch:
    """Base class of batches, whose fields are tensors and other task data."""

    def to(self: Batch, device: Any) -> Batch:
        """Return the batch on another device."""
        tensors = {name: part for name, part in vars(self).items() if hasattr(part, "to")}
        return replace(self, **{name: part.to(device, non_blocking=True) for name, part in tensors.items()})


@dataclass(frozen=True)
class DataPosition:
    """Position in the data stream; given seed and data, sufficient to resume."""

    epoch: int = 0
    index: int = 0  #: number of the batch within the epoch


@dataclass
class BatchLoader:
    """Training batches of one rank.

    The global batch depends only on data, seed, ``max_tokens`` and ``sampler``. It is split into ``world * accumulate``
    slices of near-equal token counts. Each rank gets ``accumulate`` adjacent slices.
    """

    dataset: Dataset
    seed: int
    max_tokens: int  #: maximum padded tokens per global batch, input plus target
    accumulate: int = 1
    rank: int = 0
    world: int = 1
    sampler: Sampler | None = None  #: examples of an epoch; None: every example once
    equalize_ranks: bool = False
    """Whether to pad all ranks to the same number of micro-batches, as FSDP requires."""
    schedule: DatasetSchedule | None = None  #: of batches and counts; None: ``dataset`` during the whole run
    _planned: tuple[int, EpochPlan] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world or self.accumulate < 1:
            raise ValueError(f"invalid rank {self.rank} of {self.world}, or accumulate={self.accumulate}")

    def batch_at(self, position: DataPosition, progress: float = 0.0) -> tuple[StepBatches, DataPosition]:
        """Return the step at any position, and the position after it.

        ``progress`` is the share of the run completed before the step. Which examples it has does not depend on it.

        Raises:
            RunError: The position is beyond the last batch of the epoch.
        """
        epoch, plan = position.epoch, self.plan(position.epoch)
        if position.index >= plan.n_batches:
            raise RunError(f"batch {position.index:,} does not exist: an epoch has {plan.n_batches:,} batches")
        batch = plan.batch(position.index)  # (n,) indices
        n_inputs, n_targets = (lengths[batch].astype(np.int64) for lengths in self.dataset.lengths)
        costs = n_inputs + n_targets
        parts = split(batch, costs, self.world * self.accumulate)
        # Each rank takes adjacent slices. Some slices may be empty.
        starts = range(0, len(parts), self.accumulate)
        slices = [[part for part in parts[start : start + self.accumulate] if len(part)] for start in starts]
        n_padding = max(map(len, slices)) - len(slices[self.rank]) if self.equalize_ranks else 0
        mine = slices[self.rank] + [batch[:1]] * n_padding
        dataset = self.dataset if self.schedule is None else self.schedule(progress)
        done = position.index + 1
        step = StepBatches(
            micro_batches=tuple(dataset.batch(indices, self.seed, epoch) for indices in mine),
            n_padding_batches=n_padding,
            counts=dataset.counts(batch, self.seed, epoch),
            n_tokens=int(costs.sum()),
            epoch=epoch + done / plan.n_batches,
        )
        return step, DataPosition(epoch, done) if done < plan.n_batches else DataPosition(epoch + 1)

    def plan(self, epoch: int) -> EpochPlan:
        """Return the plan of an epoch (cached); raise ``DataError`` if it is empty."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = None  # free the old plan before building the new one
            examples = None if self.sampler is None else self.sampler(self.seed, epoch)
            lengths = self.dataset.lengths
            plan = plan_epoch(*lengths, seed=self.seed, epoch=epoch, max_tokens=self.max_tokens, examples=examples)
            if not plan.n_batches:
                raise DataError("the epoch has no examples", where="data", help="add training data, or raise --weight")
            self._planned = (epoch, plan)
        return self._planned[1]


@dataclass(frozen=True)
class Batching:
    """Batch size at inference; affects speed only, not float32 output."""

    size: int = 64
    unit: Literal["sentences", "tokens"] = "sentences"
    window: int = 4096  #: lines that are read and sorted by length at a time


def make_batches(lengths: Sequence[int], batching: Batching) -> list[list[int]]:
    """Group indices by length, longest first so that memory use peaks early."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches: list[list[int]] = []
    for i in order:
        size = len(batches[-1]) + 1 if batches else 0
        # The first line of a batch is the longest; all lines are padded to its length plus EOS.
        cost = size if batching.unit == "sentences" or not batches else (lengths[batches[-1][0]] + 1) * size
        if not batches or cost > batching.size:
            batches.append([])
        batches[-1].append(i)
    return batches
