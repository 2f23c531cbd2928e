"""PCA against the singular value decomposition, t-SNE against its own definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnkit.tasks.word2vec.pca import pca
from attnkit.tasks.word2vec.tsne import conditional, divergence, gradient, joint, squared_distances, tsne

DRAWN = np.random.default_rng(1)
VECTORS = DRAWN.normal(size=(60, 12)) @ np.diag(np.linspace(3, 0.2, 12)) + 2


def test_pca_is_the_decomposition_of_centred_vectors() -> None:
    plane = pca(VECTORS.astype(np.float32))
    centred = VECTORS.astype(np.float32) - VECTORS.astype(np.float32).mean(0, dtype=np.float64)
    left, values, axes = np.linalg.svd(centred, full_matrices=False)
    for axis in (0, 1):
        sign = np.sign(axes[axis][np.abs(axes[axis]).argmax()])
        assert np.abs(plane.points[:, axis] - sign * left[:, axis] * values[axis]).max() < 1e-9
        assert plane.shares[axis] == pytest.approx(values[axis] ** 2 / (values**2).sum(), rel=1e-9)


def test_pca_of_vectors_that_are_all_alike() -> None:
    plane = pca(np.ones((5, 4), np.float32))
    assert np.abs(plane.points).max() == 0 and plane.shares == (0, 0)


def test_distances_equal_a_naive_loop() -> None:
    expected = [[sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for y in VECTORS] for x in VECTORS]
    assert np.abs(squared_distances(VECTORS) - expected).max() < 1e-9


@pytest.mark.parametrize("perplexity", [2.0, 7.5, 19.0])
def test_every_row_has_the_perplexity(perplexity: float) -> None:
    """Σ_j p_(j|i) = 1, p_(i|i) = 0, and 2 to the entropy in bits is what was asked for."""
    p = conditional(squared_distances(VECTORS), perplexity)
    for i, row in enumerate(p.tolist()):
        assert row[i] == 0 and sum(row) == pytest.approx(1, abs=1e-12)
        assert 2 ** -sum(x * math.log2(x) for x in row if x > 0) == pytest.approx(perplexity, rel=1e-5)


def test_a_row_is_a_gaussian_of_the_distances() -> None:
    """Log p_(j|i) falls with |x_i - x_j|² along one line."""
    distances = squared_distances(VECTORS)
    row, others = conditional(distances, 8.0)[3], np.arange(60) != 3
    slopes = np.diff(np.log(row[others])) / np.diff(distances[3][others])
    assert slopes.max() < 0 and np.ptp(slopes) < 1e-6 * abs(slopes.mean())


def test_joint_probabilities_are_symmetric_and_sum_to_one() -> None:
    p = joint(squared_distances(VECTORS), 8.0)
    assert np.abs(p - p.T).max() == 0 and p.sum() == pytest.approx(1, abs=1e-12)


def test_vectors_that_stand_twice_keep_their_share() -> None:
    twice = np.concatenate([VECTORS, VECTORS[:1], VECTORS[:1]])
    p = conditional(squared_distances(twice), 5.0)
    assert np.isfinite(p).all() and np.abs(p.sum(1) - 1).max() < 1e-12
    same = conditional(np.zeros((6, 6)), 3.0)  # where no variance gives it
    assert np.abs(same - (1 - np.eye(6)) / 5).max() < 1e-12


def naive_divergence(p: np.ndarray, points: np.ndarray) -> float:
    near = [
        [0.0 if i == j else 1 / (1 + sum((a - b) ** 2)) for j, b in enumerate(points)] for i, a in enumerate(points)
    ]
    total = sum(map(sum, near))
    terms = [
        p[i, j] * math.log(p[i, j] / (near[i][j] / total))
        for i in range(len(points))
        for j in range(len(points))
        if p[i, j] > 0
    ]
    return sum(terms)


def test_the_gradient_is_that_of_the_divergence() -> None:
    few = VECTORS[:12]
    p, points = joint(squared_distances(few), 3.0), DRAWN.normal(size=(12, 2))
    assert divergence(p, points) == pytest.approx(naive_divergence(p, points), rel=1e-9)
    found = gradient(p, points)
    for i in range(12):
        for axis in (0, 1):
            ends = []
            for way in (1e-5, -1e-5):
                moved = points.copy()
                moved[i, axis] += way
                ends.append(naive_divergence(p, moved))
            assert found[i, axis] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-7)


def test_groups_stay_groups_and_the_picture_is_always_the_same() -> None:
    centres = DRAWN.normal(size=(4, 20)) * 3
    labels = np.repeat(np.arange(4), 20)
    vectors = (centres[labels] + 0.3 * DRAWN.normal(size=(80, 20))).astype(np.float32)
    placed = list(tsne(vectors, 10.0, 200))
    assert [each.step for each in placed] == [50, 100, 150, 200]
    distances = squared_distances(placed[-1].points)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argmin(1)] == labels).all()
    p = joint(squared_distances(vectors.astype(np.float64)), 10.0)
    assert placed[-1].loss == pytest.approx(naive_divergence(p, placed[-1].points), rel=1e-6)
    assert placed[-1].loss < divergence(p, 1e-4 * pca(vectors).points)
    assert np.array_equal(list(tsne(vectors, 10.0, 200))[-1].points, placed[-1].points)
