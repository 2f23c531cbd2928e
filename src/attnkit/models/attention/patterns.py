"""Sparse attention patterns, as tiles of the attention matrix.

Free of torch: positions may be numbers or tensors. ``sparse`` computes attention over the tiles. Letters: T queries,
S keys; i is a query's position and j a key's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

PatternName = Literal["window", "strided", "block", "global"]
Sees = Callable[[Any, Any], Any]  #: whether query i attends to key j, elementwise for tensors

ROWS, COLUMNS = 128, 2048  #: queries and keys per tile: at most 1 MB of scores per head in float32


@dataclass(frozen=True)
class Tile:
    """A part of the matrix: some queries and some keys, each at even steps."""

    queries: range
    keys: range
    sees: Sees | None = None  #: pairs of the tile that attend; None: all


@dataclass(frozen=True)
class Pattern:
    """Who sees whom. Every pair that ``sees`` allows counts in exactly one of the ``tiles``."""

    size: int  #: reach in positions; its meaning depends on the kind
    causal: bool = False  #: no query attends to a later key
    n_global: int = 1  #: first positions that see all and that all see; for ``GlobalWindow`` alone

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"a pattern needs a size of at least 1, not {self.size}")

    def sees(self, i: Any, j: Any) -> Any:
        """Return whether query i sees key j."""
        # Subclasses use bitwise operators, which work on numbers and on tensors alike.
        raise NotImplementedError

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """List the tiles of the matrix (T, S)."""
        raise NotImplementedError

    def dense_mask(self, n_queries: int, n_keys: int) -> list[list[bool]]:
        """Return the equivalent dense mask (T, S), True where attention is allowed."""
        return [[bool(self.sees(i, j)) for j in range(n_keys)] for i in range(n_queries)]


@dataclass(frozen=True)
class Window(Pattern):
    """A query sees its own key and ``size`` to each side, or causally to the left (Longformer: Beltagy 2020, 3.1)."""

    def sees(self, i: Any, j: Any) -> Any:
        return (j >= i - self.size) & (j <= (i if self.causal else i + self.size))

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """List the tiles of the matrix (T, S): a band along its diagonal."""
        return _cover(range(n_queries), range(n_keys), self.sees, self.size, 0 if self.causal else self.size)


@dataclass(frozen=True)
class Strided(Pattern):
    """A query sees the keys less than ``size`` away and, beyond them, every size-th (Child 2019, 4.3, strided)."""

    def sees(self, i: Any, j: Any) -> Any:
        return self._near(i, j) | self._far(i, j)

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """List the tiles of the matrix (T, S): a band, then the positions that leave the same remainder together."""
        # The band holds distances below size; the grid of remainders all others.
        reach = self.size - 1
        yield from _cover(range(n_queries), range(n_keys), self._near, reach, 0 if self.causal else reach)
        # Positions of one remainder see each other: a dense matrix of T / size positions.
        for first in range(self.size):
            queries, keys = range(first, n_queries, self.size), range(first, n_keys, self.size)
            yield from _cover(queries, keys, self._far, after=0 if self.causal else None)

    def _near(self, i: Any, j: Any) -> Any:
        return (abs(i - j) < self.size) & ((j <= i) | (not self.causal))

    def _far(self, i: Any, j: Any) -> Any:
        return ((i - j) % self.size == 0) & (abs(i - j) >= self.size) & ((j <= i) | (not self.causal))


@dataclass(frozen=True)
class BlockDiagonal(Pattern):
    """A query sees the keys of its own block of ``size`` positions, or causally those up to its own (Qiu 2020)."""

    def sees(self, i: Any, j: Any) -> Any:
        return (i // self.size == j // self.size) & ((j <= i) | (not self.causal))

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """Yield the tiles of the matrix (T, S): its blocks; small ones share a tile."""
        # Small blocks share a tile, and sees keeps them apart.
        n_together = max(1, ROWS // self.size)
        sees = None if n_together == 1 and not self.causal else self.sees
        queries, keys = (_cut(range(n), n_together * self.size) for n in (n_queries, n_keys))
        for rows, columns in zip(queries, keys, strict=False):
            yield from _cover(rows, columns, sees, after=0 if self.causal else None)


@dataclass(frozen=True)
class GlobalWindow(Pattern):
    """A window of ``size``, and ``n_global`` first positions that see all and that all see.

    Longformer's global attention (Beltagy 2020, 3.1); BigBird (Zaheer 2020) has random keys besides.
    """

    def sees(self, i: Any, j: Any) -> Any:
        near = (j >= i - self.size) & (j <= i + self.size)
        return (near | (i < self.n_global) | (j < self.n_global)) & ((j <= i) | (not self.causal))

    def tiles(self, n_queries: int, n_keys: int) -> Iterator[Tile]:
        """List the tiles of the matrix (T, S): rows and columns of the first positions, then a band of the others."""
        # Three parts, none of which overlap: global rows, global columns, the band of the rest.
        queries, keys = range(n_queries), range(n_keys)
        # Without causality the rows of global positions are full.
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
    """Return a pattern by name; n_global is used by ``global`` alone."""
    return PATTERNS[name](size, causal, n_global)


def _cut(positions: range, size: int) -> Iterator[range]:
    """Cut positions into runs of at most ``size``."""
    for first in range(0, len(positions), size):
        yield positions[first : first + size]


def _cover(
    queries: range, keys: range, sees: Sees | None, before: int | None = None, after: int | None = None
) -> Iterator[Tile]:
    """Cover the keys from ``before`` positions before each query to ``after`` after it with tiles; None: no limit."""
    for rows in _cut(queries, ROWS):
        start = keys.start if before is None else max(keys.start, rows[0] - before)
        stop = keys.stop if after is None else min(keys.stop, rows[-1] + 1 + after)
        for columns in _cut(range(start, stop, keys.step), COLUMNS):
            yield Tile(rows, columns, sees)
