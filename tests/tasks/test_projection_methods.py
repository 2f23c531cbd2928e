"""PCA against the singular value decomposition; t-SNE keeps groups, and gives the same picture each time."""

from __future__ import annotations

import numpy as np
import pytest

from attnkit import Vectors
from attnkit.errors import UsageError
from attnkit.tasks.word2vec.project import ProjectionRequest, cluster_words, pca, project_words

DRAWN = np.random.default_rng(1)
VECTORS = DRAWN.normal(size=(60, 12)) @ np.diag(np.linspace(3, 0.2, 12)) + 2


def test_pca_is_the_decomposition_of_centred_vectors() -> None:
    points, share = pca(VECTORS.astype(np.float32))
    centred = VECTORS.astype(np.float32) - VECTORS.astype(np.float32).mean(0, dtype=np.float64)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    for axis in (0, 1):
        expected = left[:, axis] * values[axis]
        sign = np.sign(expected @ points[:, axis])
        assert np.abs(points[:, axis] - sign * expected).max() < 1e-6
    assert share == pytest.approx((values[:2] ** 2).sum() / (values**2).sum(), rel=1e-6)


def test_pca_of_vectors_that_are_all_alike() -> None:
    points, share = pca(np.ones((5, 4), np.float32))
    assert np.abs(points).max() == 0 and share == 0


def test_groups_stay_groups_and_the_picture_is_always_the_same() -> None:
    centres = DRAWN.normal(size=(4, 20)) * 3
    labels = np.repeat(np.arange(4), 20)
    rows = (centres[labels] + 0.3 * DRAWN.normal(size=(80, 20))).astype(np.float32)
    vectors = Vectors([f"w{i}" for i in range(80)], rows)
    asked = ProjectionRequest("tsne", perplexity=10.0, steps=300)
    said: list[str] = []
    placed = project_words(vectors, asked, said.append)
    distances = ((placed.points[:, None] - placed.points[None]) ** 2).sum(-1)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argmin(1)] == labels).all() and said == ["t-SNE: 300 steps"]
    assert np.array_equal(project_words(vectors, asked, said.append).points, placed.points)


def test_what_needs_an_extra_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attnkit.tasks.word2vec.project.find_spec", lambda name: None)
    vectors = Vectors(["a", "b", "c"], np.eye(3, dtype=np.float32))
    with pytest.raises(UsageError, match="a projection needs scikit-learn") as found:
        project_words(vectors, ProjectionRequest(), print)
    assert found.value.help == 'pip install "attnkit[plot]"'
    with pytest.raises(UsageError, match="clustering needs scikit-learn"):
        cluster_words(vectors, 3, 2)
