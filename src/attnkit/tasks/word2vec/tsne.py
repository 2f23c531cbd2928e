"""t-SNE, exactly (van der Maaten and Hinton 2008, "Visualizing Data using t-SNE"): every pair of words counts.

Memory and time of a step grow with the square of the number of words: 2,000 words take some 100 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.tasks.word2vec.pca import pca

EXAGGERATION, EXAGGERATED = 12.0, 250
"""All p_ij are so many times larger for so many steps, so that groups form before they settle (section 3.4)."""
_TINY = 1e-12
_BISECTIONS = 60
_BLOCK = 256  # rows


@dataclass(frozen=True)
class Placed:
    """Where words stand after some steps."""

    step: int
    points: NDArray[np.float64]
    """(V, 2)."""
    loss: float
    """KL(P || Q) in nats, without exaggeration."""


def squared_distances(vectors: NDArray[Any]) -> NDArray[Any]:
    """Return |x_i - x_j|² (V, V) for vectors (V, D), 0 on the diagonal."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    found = vectors @ vectors.T
    found *= -2
    found += squares[:, None]
    found += squares
    np.maximum(found, 0, out=found)
    np.fill_diagonal(found, 0)
    return np.asarray(found)


def conditional(distances: NDArray[np.float64], perplexity: float) -> NDArray[np.float64]:
    """Return p_(j|i) (V, V) of equation 1, each row's variance such that 2^H is the perplexity; 0 on the diagonal.

    A row with more equally near words than the perplexity keeps these, all alike.
    """
    found = np.empty_like(distances)
    for start in range(0, len(distances), _BLOCK):
        rows = distances[start : start + _BLOCK].copy()
        own = np.arange(len(rows)), np.arange(start, start + len(rows))
        rows[own] = np.inf
        rows -= rows.min(1, keepdims=True)
        rows[own] = 0.0
        found[start : start + _BLOCK] = _bisected(rows, own, np.log(perplexity))
    return found


def _bisected(rows: NDArray[np.float64], own: tuple[Any, Any], entropy: float) -> NDArray[np.float64]:
    low, high = np.zeros(len(rows)), np.full(len(rows), np.inf)
    beta = 1 / np.maximum(rows.mean(1), _TINY)  # of exp(-beta d²)
    for _ in range(_BISECTIONS):
        p = np.exp(-beta[:, None] * rows)
        p[own] = 0.0
        total = p.sum(1)
        spread = np.log(total) + beta * (p * rows).sum(1) / total
        if np.abs(spread - entropy).max() < 1e-7:
            break
        wide = spread > entropy
        low, high = np.where(wide, beta, low), np.where(wide, high, beta)
        beta = np.where(np.isinf(high), 2 * beta, (low + np.where(np.isinf(high), low, high)) / 2)
        beta = np.minimum(beta, 1e12)
    return np.asarray(p / total[:, None])


def joint(distances: NDArray[np.float64], perplexity: float) -> NDArray[np.float64]:
    """Return the symmetric p_ij (V, V), (p_(j|i) + p_(i|j)) / 2V; they sum to 1."""
    found = conditional(distances, perplexity)
    return np.asarray((found + found.T) / (2 * len(found)))


def student(points: NDArray[Any]) -> tuple[NDArray[Any], float]:
    """Return (1 + |y_i - y_j|²)^-1 (V, V), 0 on the diagonal, and its sum, which q_ij is divided by (equation 4)."""
    found = squared_distances(points)
    found += 1
    np.reciprocal(found, out=found)
    np.fill_diagonal(found, 0)
    return found, float(found.sum(dtype=np.float64))


def divergence(p: NDArray[Any], points: NDArray[Any]) -> float:
    """Return KL(P || Q) = Σ p_ij log(p_ij / q_ij), equation 2 of the joint form."""
    near, total = student(np.asarray(points, np.float64))
    q = np.maximum(near / total, _TINY)
    return float((p * np.log(np.maximum(p, _TINY) / q)).sum())


def gradient(p: NDArray[Any], points: NDArray[Any]) -> NDArray[Any]:
    """Return dC/dy (V, 2) = 4 Σ_j (p_ij - q_ij)(y_i - y_j)(1 + |y_i - y_j|²)^-1, equation 5."""
    near, total = student(points)
    pull = near / total
    np.subtract(p, pull, out=pull)
    pull *= near
    return np.asarray(4 * (pull.sum(1)[:, None] * points - pull @ points))


def tsne(vectors: NDArray[np.float32], perplexity: float, n_steps: int, every: int = 50) -> Iterator[Placed]:
    """Place vectors (V, D) in the plane, from their principal components on; yield where they stand now and then.

    Gradient descent with momentum and gains, as the authors' own program does it, and the step size of Belkina et al.
    2019: V / exaggeration / 4. Nothing is drawn at random: the same vectors give the same picture.
    """
    p = joint(squared_distances(np.asarray(vectors, np.float64)), perplexity)
    quick = p.astype(np.float32) * np.float32(EXAGGERATION)
    start = pca(vectors).points
    points = (start * (1e-4 / max(float(start[:, 0].std()), _TINY))).astype(np.float32)
    speed, gains = np.zeros_like(points), np.ones_like(points)
    rate = max(len(points) / EXAGGERATION / 4, 50.0)
    exaggerated = min(EXAGGERATED, n_steps // 3)
    for step in range(1, n_steps + 1):
        if step == exaggerated + 1:
            quick /= np.float32(EXAGGERATION)
        slope = gradient(quick, points)
        gains = np.where(slope * speed < 0, gains + 0.2, np.maximum(gains * 0.8, 0.01)).astype(np.float32)
        speed = (0.5 if step <= exaggerated else 0.8) * speed - rate * gains * slope
        points = points + speed
        points -= points.mean(0)
        if step % every == 0 or step == n_steps:
            exact = points.astype(np.float64)
            yield Placed(step, exact, divergence(p, exact))
