"""Calibration of probabilities: isotonic regression, calibration error."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Doubles = NDArray[np.float64]


def isotonic_regression(x: ArrayLike, y: ArrayLike) -> tuple[Doubles, Doubles]:
    """Return knots of the non-decreasing curve with the least squared error.

    Pool adjacent violators (Ayer et al. 1955): neighbours in the wrong order are replaced by their mean, until none is
    left. With outcomes of 0 and 1 as ``y`` the curve is a calibration of the scores ``x`` (Zadrozny and Elkan 2002).
    Between the knots it is linear, beyond them constant, as ``numpy.interp`` computes it.

    Args:
        x: (N,) scores; equal ones are one point, the mean of their ``y``.
        y: (N,) values.

    Returns:
        (K,) scores, increasing, and (K,) values, non-decreasing; 1 <= K <= N.

    Raises:
        ValueError: the lengths differ, there are no values, or one is not finite.

    >>> isotonic_regression([1, 2, 3, 4], [0, 1, 0, 1])
    (array([1., 2., 3., 4.]), array([0. , 0.5, 0.5, 1. ]))
    """
    scores, values = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if scores.ndim != 1 or scores.shape != values.shape or not len(scores):
        raise ValueError(f"expected as many scores as values, at least one, not {scores.shape} and {values.shape}")
    if not (np.isfinite(scores).all() and np.isfinite(values).all()):
        raise ValueError("scores and values must be finite")
    points, where = np.unique(scores, return_inverse=True)  # (M,) in ascending order, (N,)
    weights = np.bincount(where).astype(np.float64)
    means = np.bincount(where, weights=values) / weights
    blocks: list[tuple[float, float, int]] = []  # mean, weight and number of points of each pool
    for mean, weight in zip(means.tolist(), weights.tolist(), strict=True):
        size = 1
        while blocks and blocks[-1][0] >= mean:
            other, more, n = blocks.pop()
            mean, weight, size = (other * more + mean * weight) / (more + weight), more + weight, size + n
        blocks.append((mean, weight, size))
    ends = np.cumsum([size for _, _, size in blocks])
    # A pool is flat from its first to its last point: the points between them say nothing.
    begins = ends - [size for _, _, size in blocks]
    knots = np.unique(np.concatenate([begins, ends - 1]))
    fitted = np.repeat([mean for mean, _, _ in blocks], [size for _, _, size in blocks])
    return points[knots], fitted[knots]


def calibration_error(probabilities: ArrayLike, outcomes: ArrayLike, n_bins: int = 10) -> float:
    """Return the expected calibration error, 0 to 1.

    Equation 3 of Guo et al. (2017): over bins of equal width, the mean absolute difference between the mean
    probability and the share of outcomes that are true, weighted by the number of predictions in the bin.

    Args:
        probabilities: (N,) 0 to 1.
        outcomes: (N,) whether what was predicted is true.
        n_bins: number of bins; at least 1.

    Raises:
        ValueError: the lengths differ, there are no predictions, or one is not a probability.

    >>> calibration_error([0.9, 0.9, 0.1, 0.1], [True, False, False, False])
    0.25
    """
    predicted, true = np.asarray(probabilities, np.float64), np.asarray(outcomes, np.float64)
    if predicted.ndim != 1 or predicted.shape != true.shape or not len(predicted) or n_bins < 1:
        raise ValueError("expected as many outcomes as probabilities, at least one, and at least one bin")
    if not ((predicted >= 0) & (predicted <= 1)).all():
        raise ValueError("probabilities must be from 0 to 1")
    bins = np.minimum((predicted * n_bins).astype(np.int64), n_bins - 1)
    sums = (np.bincount(bins, weights=values, minlength=n_bins) for values in (predicted, true))
    return float(np.abs(np.subtract(*sums)).sum() / len(predicted))
