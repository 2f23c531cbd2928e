"""Pearson and Spearman correlation between system scores and human scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Doubles = NDArray[np.float64]


def pearson(found: ArrayLike, expected: ArrayLike) -> float:
    """Return the Pearson correlation of two sequences; NaN if either is constant.

    Raises:
        ValueError: The lengths differ or are less than 2.
    """
    x, y = _rows(found, expected)
    x, y = x - x.mean(), y - y.mean()
    spread = float(np.sqrt((x @ x) * (y @ y)))
    return float(np.clip(x @ y / spread, -1, 1)) if spread else float("nan")


def spearman(found: ArrayLike, expected: ArrayLike) -> float:
    """Return the Spearman correlation; ties share their mean rank."""
    x, y = _rows(found, expected)
    return pearson(ranks(x), ranks(y))


def ranks(values: Sequence[float] | NDArray[Any]) -> Doubles:
    """Return the 1-based rank of each value; ties share their mean rank."""
    _, groups, sizes = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(sizes)
    means: Doubles = last - (sizes - 1) / 2
    return means[groups]


def _rows(found: ArrayLike, expected: ArrayLike) -> tuple[Doubles, Doubles]:
    x, y = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if x.ndim != 1 or x.shape != y.shape or len(x) < 2:
        raise ValueError(f"expected two sequences of the same length, at least 2, not shapes {x.shape} and {y.shape}")
    return x, y
