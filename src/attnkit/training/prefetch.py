"""Sources of training batches, read by position and one step ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class GlobalBatch(Protocol):
    """One global batch, of which this rank holds a share."""

    @property
    def micro_batches(self) -> Sequence[Any]:
        """This rank's parts, perhaps none."""

    @property
    def n_padding_batches(self) -> int:
        """How many of the parts, the last ones, count for nothing: every rank computes as often where they share."""

    @property
    def counts(self) -> Mapping[str, int]:
        """For each loss term what its sum is divided by, counted over all parts and ranks."""

    @property
    def n_tokens(self) -> int:
        """Real tokens of the global batch."""

    @property
    def epoch(self) -> float:
        """Epochs done when this step is done."""


class BatchSource(Protocol):
    """Batches as a pure function of a position."""

    def batch_at(self, position: Any, /) -> tuple[GlobalBatch, Any]:
        """Return the step at a position and the position after it."""


class Prefetcher:
    """Batch source that may be read one step ahead."""

    def __init__(self, feed: BatchSource, ahead: bool) -> None:
        self._feed, self._ahead = feed, ahead
        self._held: tuple[Any, tuple[GlobalBatch, Any]] | None = None

    def batch_at(self, position: Any) -> tuple[GlobalBatch, Any]:
        """Return the step at a position and the position after it."""
        # Compared by position: a restored state may ask for another step than the one that was prefetched.
        held, self._held = self._held, None
        return held[1] if held is not None and held[0] == position else self._feed.batch_at(position)

    def prefetch(self, position: Any) -> None:
        """Read the step at a position already now, if this reader looks ahead."""
        if self._ahead:
            self._held = position, self._feed.batch_at(position)
