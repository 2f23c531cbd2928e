"""The two directions along which vectors differ most (principal component analysis)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BLOCK = 4096  # rows


@dataclass(frozen=True)
class Plane:
    """Vectors seen along the two axes of largest variance."""

    points: NDArray[np.float64]
    """(V, 2)."""
    shares: tuple[float, float]
    """Of the whole variance, along each axis."""


def pca(vectors: NDArray[np.float32]) -> Plane:
    """Project vectors (V, D), D >= 2, onto the first two eigenvectors of their covariance.

    An axis points to where its largest number is positive, so that the same vectors always give the same picture.
    """
    mean = np.mean(vectors, axis=0, dtype=np.float64)
    covariance = np.zeros((vectors.shape[1], vectors.shape[1]))
    for start in range(0, len(vectors), _BLOCK):
        rows = vectors[start : start + _BLOCK] - mean
        covariance += rows.T @ rows
    values, axes = np.linalg.eigh(covariance)  # ascending
    axes = axes[:, [-1, -2]]
    axes = axes * np.sign(axes[np.abs(axes).argmax(0), [0, 1]])
    points = np.concatenate(
        [(vectors[start : start + _BLOCK] - mean) @ axes for start in range(0, len(vectors), _BLOCK)]
    )
    total = float(np.maximum(values, 0).sum()) or 1.0
    return Plane(points, (float(values[-1]) / total, max(0.0, float(values[-2])) / total))
