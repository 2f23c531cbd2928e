"""Sparse attention patterns, as tiles of the attention matrix.

This module does not import torch; positions may be numbers or tensors. ``sparse`` computes attention over the tiles.
Letters: T queries, S keys; i is the position of a query, j that of a key.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

PatternName = Literal["window", "strided", "block", "global"]
Sees = Callable[[Any, Any], Any]  #: whether query i attends to key j, elementwise for tensors

ROWS, COLUMNS = 128, 2048  #: queries and keys per tile: at most 1 MB of scores per head in float32


@dataclass(frozen=True)
class Tile:
    """A part of the attention matrix with evenly spaced queries and keys."""

    queries: range
    keys: range
    sees: Sees | None = None  #: which pairs of the tile may attend; None: all


@dataclass(frozen=True)
class Pattern:
    """A sparse attention pattern; each visible pair lies in exactly one of its tiles."""

    size: int  #: size in positions; the meaning depends on the pattern
    causal: bool = False  #: no query attends to a later key
    n_global: int = 1  #: leading positions that see all and are seen by all; ``GlobalWindow`` only

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a pattern needs a size of at least 1, not {self.size}")

    def sees(self, i: Any, j: Any) -> Any:
        """Return whether query i sees key j."""
        # Subclasses use bitwise operators, which work on numbers and on tensors alike.
        raise NotImplementedError

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """Yield the tiles of the attention matrix (T, S)."""
        raise NotImplementedError

    def sees_all(self, n: int) -> bool:
        """Return whether each of n queries is known to see all of n keys."""
        return False

    def dense_mask(self, n_queries: int, n_keys: int) -> list[list[bool]]:
        """Return the equivalent dense mask (T, S), True where attention is allowed."""
        return [[bool(self.sees(i, j)) for j in range(n_keys)] for i in range(n_queries)]


@dataclass(frozen=True)
class Window(Pattern):
    """Window of ``size`` keys per side, or to the left if causal (Beltagy 2020, 3.1)."""

    def sees(self, i: Any, j: Any) -> Any:
        return (j >= i - self.size) & (j <= (i if self.causal else i + self.size))

    def sees_all(self, n: int) -> bool:
        """Return whether n positions fit on each side of a query, itself included."""
        return not self.causal and n <= self.size + 1

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """Yield the tiles of a band along the diagonal."""
        return _cover(range(n_queries), range(n_keys), self.sees, self.size, 0 if self.causal else self.size)


@dataclass(frozen=True)
class Strided(Pattern):
    """All keys less than ``size`` away, then every size-th (Child 2019, 4.3, strided)."""

    def sees(self, i: Any, j: Any) -> Any:
        return self._near(i, j) | self._far(i, j)

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """Yield the tiles of the band, then those of each remainder modulo ``size``."""
        # The band covers distances below size, the remainders cover all others.
        reach = self.size - 1
        yield from _cover(range(n_queries), range(n_keys), self._near, reach, 0 if self.causal else reach)
        # Positions with the same remainder see each other: a dense matrix of T / size positions.
        for first in range(self.size):
            queries, keys = range(first, n_queries, self.size), range(first, n_keys, self.size)
            yield from _cover(queries, keys, self._far, after=0 if self.causal else None)

    def _near(self, i: Any, j: Any) -> Any:
        return (abs(i - j) < self.size) & ((j <= i) | (not self.causal))

    def _far(self, i: Any, j: Any) -> Any:
        return ((i - j) % self.size == 0) & (abs(i - j) >= self.size) & ((j <= i) | (not self.causal))


@dataclass(frozen=True)
class BlockDiagonal(Pattern):
    """Keys of the query's own block of ``size`` positions (Qiu 2020)."""

    def sees(self, i: Any, j: Any) -> Any:
        return (i // self.size == j // self.size) & ((j <= i) | (not self.causal))

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """Yield the tiles of the blocks on the diagonal; small blocks share a tile."""
        # Blocks that share a tile are kept apart by sees.
        n_together = max(1, ROWS // self.size)
        sees = None if n_together == 1 and not self.causal else self.sees
        queries, keys = (_cut(range(n), n_together * self.size) for n in (n_queries, n_keys))
        for rows, columns in zip(queries, keys, strict=False):
            yield from _cover(rows, columns, sees, after=0 if self.causal else None)


@dataclass(frozen=True)
class GlobalWindow(Pattern):
    """A window of ``size`` keys, plus ``n_global`` leading queries that see all keys.

    All queries see the leading keys (Longformer: Beltagy 2020, 3.1). BigBird (Zaheer 2020) adds random keys.
    """

    def sees(self, i: Any, j: Any) -> Any:
        near = (j >= i - self.size) & (j <= i + self.size)
        return (near | (i < self.n_global) | (j < self.n_global)) & ((j <= i) | (not self.causal))

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """Yield the tiles of global rows, global columns and the band of the other rows."""
        # Three disjoint parts: global rows, global columns and the band of the rest.
        queries, keys = range(n_queries), range(n_keys)
        # Without causality, the rows of global positions are full.
        edge, after = (self.sees, 0) if self.causal else (None, None)
        yield from _cover(queries[: self.n_global], keys, edge, after=after)
        yield from _cover(queries[self.n_global :], keys[: self.n_global], None)
        after = 0 if self.causal else self.size
        yield from _cover(queries[self.n_global :], keys[self.n_global :], self.sees, self.size, after)


PATTERNS: dict[PatternName, type[Pattern]] = {
    "window": Window,
    "strided": Strided,
    "block": BlockDiagonal,
    "global": GlobalWindow,
}


def make_pattern(name: PatternName, size: int, causal: bool = False, n_global: int = 1) -> Pattern:
    """Build a pattern by name; n_global applies to ``global`` only."""
    return PATTERNS[name](size, causal, n_global)


def _cut(positions: range, size: int) -> Iterator[range]:
    """Yield consecutive ranges of at most ``size`` positions."""
    for first in range(0, len(positions), size):
        yield positions[first : first + size]


def _cover(
    queries: range, keys: range, sees: Sees | None, before: int | None = None, after: int | None = None
) -> Iterator[Tile]:
    """Yield tiles with keys ``before`` to ``after`` around each query; None: no limit."""
    for rows in _cut(queries, ROWS):
        start = keys.start if before is None else max(keys.start, rows[0] - before)
        stop = keys.stop if after is None else min(keys.stop, rows[-1] + 1 + after)
        for columns in _cut(range(start, stop, keys.step), COLUMNS):
            yield Tile(rows, columns, sees)
