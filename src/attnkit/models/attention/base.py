"""What every alignment function offers: the face that attention asks for, and the class that ours are made from."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn


class Alignment(Protocol):
    """Scores of queries (B, H, T, d_query) against keys (B, H, S, d_key)."""

    def prepare(self, keys: Tensor) -> Tensor:
        """Return what depends on the keys alone, (B, H, S, width), the width being the function's own."""
        ...

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (B, H, T, S) of queries against prepared keys."""
        ...

    def __call__(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S)."""
        ...


class AlignmentModule(nn.Module):
    """An alignment function of the table; satisfies Alignment."""

    def prepare(self, keys: Tensor, at: int | None = None) -> Tensor:
        """Return what depends on the keys alone, (B, H, S, width).

        at is the position at which all the keys stand, as in a step of a decoder; None: they stand at 0, 1, 2, ...
        """
        raise NotImplementedError

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """Return scores (B, H, T, S) of queries against prepared keys."""
        raise NotImplementedError

    def relative(self, query: Tensor, prepared: Tensor, mask: Tensor | None) -> Tensor:
        """Return the scores times any positive number of each row's own, which weights s / Σ s do not notice.

        Functions whose scores may all vanish beside the smallest number there is choose it by what the mask shows.
        """
        return self.score(query, prepared)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Return scores (B, H, T, S)."""
        return self.score(query, self.prepare(keys))
