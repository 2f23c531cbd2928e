"""Correlations against values worked out by hand, and against the definition written as loops."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attnkit.metrics.similarity import pearson, ranks, spearman


def test_hand_worked_values() -> None:
    # Means 2 and 3; deviations -1 0 1 and -1 1 0; products sum to 1, squares to 2 and 2.
    assert pearson([1, 2, 3], [2, 4, 3]) == pytest.approx(0.5)
    # Ranks 1 2.5 2.5 4 and 1 2 3 4: deviations -1.5 0 0 1.5 and -1.5 -.5 .5 1.5; 4.5 / sqrt(4.5 * 5).
    assert spearman([1, 7, 7, 90], [0, 1, 2, 3]) == pytest.approx(4.5 / math.sqrt(22.5))
    assert spearman([1, 10, 100], [5, 6, 7]) == pytest.approx(1.0)
    assert spearman([3, 2, 1], [5, 6, 7]) == pytest.approx(-1.0)


def test_without_equals_spearman_is_the_formula_of_squared_differences() -> None:
    random = np.random.default_rng(3)
    x, y = random.permutation(40), random.permutation(40)
    squared = sum((int(a) - int(b)) ** 2 for a, b in zip(x, y, strict=True))
    assert spearman(x, y) == pytest.approx(1 - 6 * squared / (40 * (40**2 - 1)))


def test_ranks_equal_a_naive_loop() -> None:
    values = np.random.default_rng(1).integers(0, 6, 30)
    naive = [1 + sum(o < v for o in values) + (sum(o == v for o in values) - 1) / 2 for v in values]
    assert ranks(values).tolist() == naive


def test_a_constant_has_no_correlation_and_lengths_must_agree() -> None:
    assert math.isnan(pearson([1, 1, 1], [1, 2, 3])) and math.isnan(spearman([1, 2, 3], [4, 4, 4]))
    for x, y in (([1], [1]), ([1, 2], [1, 2, 3]), ([], [])):
        with pytest.raises(ValueError, match="expected two sequences of the same length"):
            pearson(x, y)
