"""The stream of training steps over anything that has rows: which rows a step holds, as a function of the position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from attnkit.data.batch_plan import EpochPlan, plan_epoch
from attnkit.data.feed import Position, StepBatches, slices_of
from attnkit.data.permutation import Words
from attnkit.errors import RunError

Indices = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.integer[Any]]


class Dataset(Protocol):
    """Examples of a task, which alone knows what is in them."""

    @property
    def lengths(self) -> tuple[Lengths, Lengths]:
        """(n,) tokens that go into the model for each row, and tokens that have to come out of it."""
        ...

    def batch(self, indices: Indices, seed: int, epoch: int) -> Any:
        """Return the rows at ``indices``, at least one, as the task's loss takes them."""
        ...

    def counts(self, indices: Indices, seed: int, epoch: int) -> Mapping[str, int]:
        """Return for each loss term what its sum over these rows is divided by."""
        ...


@dataclass
class BatchLoader:
    """Gives the steps of a training run over rows.

    The global batch depends on data, seed and ``max_tokens`` only. It is cut into ``world * accumulate`` slices of
    near-equal token counts, and rank r gets ``accumulate`` neighbours of them.
    """

    rows: Dataset
    seed: int
    max_tokens: int
    """Most padded tokens, in and out together, of the global batch."""
    accumulate: int = 1
    rank: int = 0
    world: int = 1
    examples: Callable[[int, int], Words | None] | None = None
    """From seed and epoch the indices that this epoch uses, repeats allowed; None, here or found: all of them once."""
    equalize_ranks: bool = False
    """Whether every rank has to compute equally often, if on batches that count for nothing."""
    _planned: tuple[int, EpochPlan] | None = field(default=None, init=False, repr=False)

    def batch_at(self, position: Position) -> tuple[StepBatches[Any], Position]:
        """Return the step at a position and the position after it. Calls may come in any order.

        Raises:
            RunError: There is no such position.
        """
        epoch = position.epoch
        plan = self.plan(epoch)
        if position.index >= plan.n_batches:
            raise RunError(f"an epoch of this data has {plan.n_batches:,} batches, none of number {position.index:,}")
        batch = plan.batch(position.index)
        came_in, come_out = (lengths[batch].astype(np.int64) for lengths in self.rows.lengths)
        costs = came_in + come_out
        mine, n_idle = slices_of(batch, costs, self)
        done = position.index + 1
        step: StepBatches[Any] = StepBatches(
            micro_batches=tuple(self.rows.batch(indices, self.seed, epoch) for indices in mine),
            n_padding_batches=n_idle,
            counts=self.rows.counts(batch, self.seed, epoch),
            n_tokens=int(costs.sum()),
            epoch=epoch + done / plan.n_batches,
        )
        return step, Position(epoch, done) if done < plan.n_batches else Position(epoch + 1)

    def plan(self, epoch: int) -> EpochPlan:
        """Return the plan of an epoch; the latest is kept."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = None
            examples = None if self.examples is None else self.examples(self.seed, epoch)
            self._planned = (epoch, self._plan(epoch, examples))
        return self._planned[1]

    def _plan(self, epoch: int, examples: Words | None) -> EpochPlan:
        return plan_epoch(
            *self.rows.lengths, seed=self.seed, epoch=epoch, max_tokens=self.max_tokens, examples=examples
        )
