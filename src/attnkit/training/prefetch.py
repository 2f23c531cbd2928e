"""What the training loop reads its batches from: a pure function of a position. Knows nothing of what they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Step(Protocol):
    """One global batch, of which this rank holds a share."""

    @property
    def micro_batches(self) -> Sequence[Any]:
        """This rank's parts, perhaps none."""

    @property
    def n_idle(self) -> int:
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


class Feed(Protocol):
    """Batches as a pure function of a position."""

    def step_at(self, position: Any, /) -> tuple[Step, Any]:
        """Return the step at a position and the position after it."""


class Reader:
    """A feed that may be read one step ahead."""

    def __init__(self, feed: Feed, ahead: bool) -> None:
        self._feed, self._ahead = feed, ahead
        self._held: tuple[Any, tuple[Step, Any]] | None = None

    def step_at(self, position: Any) -> tuple[Step, Any]:
        """Return the step at a position and the position after it."""
        held, self._held = self._held, None
        return held[1] if held is not None and held[0] == position else self._feed.step_at(position)

    def look(self, position: Any) -> None:
        """Read the step at a position already now, if this reader looks ahead."""
        if self._ahead:
            self._held = position, self._feed.step_at(position)
