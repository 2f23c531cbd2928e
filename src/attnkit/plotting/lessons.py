"""The numbers that ``attnkit explain`` shows, as plain data; ``blackboard`` and ``slides`` draw them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attnkit.plotting.curves import Curve


@dataclass(frozen=True)
class MaskLesson:
    """Which positions look at which."""

    words: Sequence[str]
    pattern: str | None
    """The name of a sparse pattern; None for all pairs."""
    size: int
    """Of the pattern."""
    n_global: int
    """Of the pattern."""
    causal: bool
    mask: Sequence[Sequence[bool]]
    """A row for each word that looks, a column for each that it looks at; True = may look."""
    weights: Sequence[Sequence[float]]
    """What softmax gives under this mask where all scores are equal."""
    pairs: Sequence[tuple[int, int]]
    """Lengths, and how many pairs the mask leaves of a sequence as long."""


@dataclass(frozen=True)
class PositionsLesson:
    """Sinusoidal positions, and what attention is without any."""

    table: Sequence[Sequence[float]]
    """A row for each position."""
    shift: int
    angles: Sequence[float]
    """By which a shift turns each pair of sine and cosine, in radians."""
    matrix: Sequence[Sequence[float]]
    """M with PE(pos + shift) = M PE(pos)."""
    errors: Mapping[int, float]
    """Position -> the largest |PE(pos + shift) - M PE(pos)|."""
    words: Sequence[str]
    order: Sequence[int]
    """Where the words of the shuffled sentence stood."""
    moved: Mapping[str, Sequence[float]]
    """Kind of positions -> for each word of the sentence, the largest difference between its vector in the sentence
    and its vector in the shuffled one."""
    picture: Sequence[Sequence[float]]
    """A larger table, for paper."""


@dataclass(frozen=True)
class Fit:
    """One way to predict y from x."""

    name: str
    w: float | None
    error: float
    """Mean squared difference from the true curve."""
    effective_points: float
    """e to the entropy of the weights, mean over places."""


@dataclass(frozen=True)
class PoolingLesson:
    """Kernel regression: points, the curve they come from, and the curves found."""

    curves: Sequence[Curve]
    fits: Sequence[Fit]
