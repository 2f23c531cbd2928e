"""The stream of training steps as a pure function of the position, and batches for inference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from attnkit.data.batch_plan import EpochPlan, plan_epoch, split
from attnkit.data.permutation import Ids, Integers, Words
from attnkit.errors import DataError, RunError
from attnkit.training.records import StepBatches

Sampler = Callable[[int, int], Words | None]
"""(seed, epoch) -> the indices of an epoch, repeats allowed; None: every example once."""
Batch = TypeVar("Batch", bound="TensorBatch")


class Dataset(Protocol):
    """Examples of a task."""

    @property
    def lengths(self) -> tuple[Integers, Integers]:
        """(n,) input tokens and (n,) target tokens of each example."""

    def batch(self, indices: Ids, seed: int, epoch: int) -> Any:
        """Return the examples at ``indices``, at least one, as the task's loss takes them."""

    def counts(self, indices: Ids, seed: int, epoch: int) -> Mapping[str, int]:
        """Return the count that each loss term is divided by, over these examples."""


@dataclass(frozen=True)
class TensorBatch:
    """Base of batches: fields are tensors, but for what a task needs besides."""

    def to(self: Batch, device: Any) -> Batch:
        """Return the batch on another device."""
        tensors = {name: part for name, part in vars(self).items() if hasattr(part, "to")}
        return replace(self, **{name: part.to(device, non_blocking=True) for name, part in tensors.items()})


@dataclass(frozen=True)
class DataPosition:
    """Position in the data stream; with seed and data, enough to resume."""

    epoch: int = 0
    index: int = 0  #: number of the batch within the epoch


@dataclass
class BatchLoader:
    """Batches of one rank's training steps.

    The global batch depends on data, seed, ``max_tokens`` and ``sampler`` only. It is cut into ``world * accumulate``
    slices of near-equal token counts; rank r gets ``accumulate`` neighbouring slices.
    """

    dataset: Dataset
    seed: int
    max_tokens: int  #: maximum padded tokens, input and target together, of the global batch
    accumulate: int = 1
    rank: int = 0
    world: int = 1
    sampler: Sampler | None = None  #: examples of an epoch; None: every example once
    equalize_ranks: bool = False
    """Give every rank the same number of micro-batches, padding batches included, as FSDP needs."""
    _planned: tuple[int, EpochPlan] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world or self.accumulate < 1:
            raise ValueError(f"invalid rank {self.rank} of {self.world}, or accumulate={self.accumulate}")

    def batch_at(self, position: DataPosition) -> tuple[StepBatches, DataPosition]:
        """Return the step at a position and the position after it. Calls may come in any order.

        Raises:
            RunError: the epoch has no batch of that number.
        """
        epoch, plan = position.epoch, self.plan(position.epoch)
        if position.index >= plan.n_batches:
            raise RunError(f"batch {position.index:,} does not exist: an epoch has {plan.n_batches:,} batches")
        batch = plan.batch(position.index)  # (n,) indices
        n_inputs, n_targets = (lengths[batch].astype(np.int64) for lengths in self.dataset.lengths)
        costs = n_inputs + n_targets
        parts = split(batch, costs, self.world * self.accumulate)
        # Rank r takes neighbours, of which some may be empty.
        starts = range(0, len(parts), self.accumulate)
        slices = [[part for part in parts[start : start + self.accumulate] if len(part)] for start in starts]
        n_padding = max(map(len, slices)) - len(slices[self.rank]) if self.equalize_ranks else 0
        mine = slices[self.rank] + [batch[:1]] * n_padding
        done = position.index + 1
        step = StepBatches(
            micro_batches=tuple(self.dataset.batch(indices, self.seed, epoch) for indices in mine),
            n_padding_batches=n_padding,
            counts=self.dataset.counts(batch, self.seed, epoch),
            n_tokens=int(costs.sum()),
            epoch=epoch + done / plan.n_batches,
        )
        return step, DataPosition(epoch, done) if done < plan.n_batches else DataPosition(epoch + 1)

    def plan(self, epoch: int) -> EpochPlan:
        """Return the plan of an epoch; the latest is kept. Raises ``DataError`` for an epoch without examples."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = None  # free the old plan before the new one is made
            examples = None if self.sampler is None else self.sampler(self.seed, epoch)
            lengths = self.dataset.lengths
            plan = plan_epoch(*lengths, seed=self.seed, epoch=epoch, max_tokens=self.max_tokens, examples=examples)
            if not plan.n_batches:
                raise DataError("an epoch has no examples", where="data", help="add training data, or raise --weight")
            self._planned = (epoch, plan)
        return self._planned[1]


@dataclass(frozen=True)
class Batching:
    """Batch size at inference; affects speed only, not float32 output."""

    size: int = 64
    unit: Literal["sentences", "tokens"] = "sentences"
    window: int = 4096  #: lines that are read and sorted by length together


def make_batches(lengths: Sequence[int], batching: Batching) -> list[list[int]]:
    """Group indices by length, longest first, so that padding is rare and the greatest need of memory comes first."""
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    batches: list[list[int]] = []
    for i in order:
        size = len(batches[-1]) + 1 if batches else 0
        # The first of a batch is its longest; each line is padded to it and to its end symbol.
        cost = size if batching.unit == "sentences" or not batches else (lengths[batches[-1][0]] + 1) * size
        if not batches or cost > batching.size:
            batches.append([])
        batches[-1].append(i)
    return batches
