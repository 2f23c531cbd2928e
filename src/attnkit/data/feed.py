"""The stream of training steps: which batches a step holds, as a function of the position alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from attnkit.data.batch_plan import EpochPlan, draw, plan_epoch, split_for_rank
from attnkit.data.pairs import PairBatch, Pairs
from attnkit.errors import DataError, RunError

_Batch = TypeVar("_Batch")


@dataclass(frozen=True)
class Position:
    """A place in the stream: all that a resumed run needs to know, beside seed and data."""

    epoch: int = 0
    index: int = 0
    """Number of the batch within the epoch."""


@dataclass(frozen=True)
class StepBatches(Generic[_Batch]):
    """One global batch, of which this rank holds a share."""

    micro_batches: tuple[_Batch, ...]
    """This rank's slices, at most ``accumulate`` of them; empty slices are left out, so there may be none."""
    n_padding_batches: int
    """How many of them, the last ones, are there only so that every rank computes as often: they count for nothing."""
    counts: Mapping[str, int]
    """For each loss term, what its sum is divided by: counted over the whole global batch."""
    n_tokens: int
    """Real tokens of the whole global batch, in and out; of text, end symbols included."""
    epoch: float
    """Epochs done when this step is done."""


class RankSplit(Protocol):
    """Which share of each global batch a feed gives."""

    rank: int
    world: int
    accumulate: int
    equalize_ranks: bool


def slices_of(
    batch: npt.NDArray[Any], costs: npt.NDArray[np.int64], split: RankSplit
) -> tuple[list[npt.NDArray[Any]], int]:
    """Return the slices of a global batch that a rank takes, none of them empty, and how many count for nothing."""
    each = [
        [part for part in split_for_rank(batch, costs, rank, split.world, split.accumulate) if len(part)]
        for rank in (range(split.world) if split.equalize_ranks else [split.rank])
    ]
    mine = each[split.rank] if split.equalize_ranks else each[0]
    n_idle = max(map(len, each)) - len(mine)
    return mine + [batch[:1]] * n_idle, n_idle


@dataclass
class PairLoader:
    """Gives the steps of a training run over pairs.

    The global batch depends on data, seed, ``max_tokens`` and ``weights`` only. It is cut into ``world * accumulate``
    slices of near-equal token counts, and rank r gets ``accumulate`` neighbours of them.
    """

    pairs: Pairs
    seed: int
    max_tokens: int
    """Most padded tokens, source and target together, of the global batch."""
    accumulate: int = 1
    rank: int = 0
    world: int = 1
    weights: tuple[float, ...] | None = None
    """How often an epoch uses the pairs of each corpus; see ``order.draw``."""
    equalize_ranks: bool = False
    """Whether every rank has to compute equally often, if on batches that count for nothing."""
    _planned: tuple[int, EpochPlan] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world or self.accumulate < 1:
            raise ValueError(f"no share for rank {self.rank} of {self.world} with {self.accumulate} slices each")
        if self.weights is not None and len(self.weights) != len(self.pairs.corpora):
            raise ValueError(f"{len(self.weights)} weights for {len(self.pairs.corpora)} corpora")

    def batch_at(self, position: Position) -> tuple[StepBatches[PairBatch], Position]:
        """Return the step at a position and the position after it. Calls may come in any order.

        Raises:
            RunError: There is no such position.
        """
        plan = self.plan(position.epoch)
        if position.index >= plan.n_batches:
            raise RunError(f"an epoch of this text has {plan.n_batches:,} batches, none of number {position.index:,}")
        batch = plan.batch(position.index)
        src_lengths, tgt_lengths = (lengths[batch] for lengths in self.pairs.lengths)
        costs = src_lengths.astype(np.int64) + tgt_lengths
        mine, n_idle = slices_of(batch, costs, self)
        done = position.index + 1
        step = StepBatches(
            micro_batches=tuple(self.pairs.collate(indices) for indices in mine),
            n_padding_batches=n_idle,
            counts={"nll": int(tgt_lengths.sum())},
            n_tokens=int(costs.sum()),
            epoch=position.epoch + done / plan.n_batches,
        )
        return step, Position(position.epoch, done) if done < plan.n_batches else Position(position.epoch + 1)

    def plan(self, epoch: int) -> EpochPlan:
        """Return the plan of an epoch; the latest is kept. Raises ``DataError`` if the epoch has no pairs."""
        if self._planned is None or self._planned[0] != epoch:
            self._planned = None
            self._planned = (epoch, self._plan(epoch))
        return self._planned[1]

    def _plan(self, epoch: int) -> EpochPlan:
        examples = None
        if self.weights is not None and set(self.weights) != {1.0}:
            examples = draw(self.pairs.corpora, self.weights, seed=self.seed, epoch=epoch)
        src_lengths, tgt_lengths = self.pairs.lengths
        plan = plan_epoch(
            src_lengths, tgt_lengths, seed=self.seed, epoch=epoch, max_tokens=self.max_tokens, examples=examples
        )
        if not plan.n_batches:
            raise DataError("an epoch without pairs has no steps", where="data.weights", help="give a greater --weight")
        return plan
