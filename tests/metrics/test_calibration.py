"""Isotonic regression and calibration error against references of their own."""

from __future__ import annotations

import numpy as np
import pytest

from attnkit.metrics.calibration import calibration_error, isotonic_regression

GRID = np.linspace(-4, 4, 401)


def least_squares(x: np.ndarray, y: np.ndarray) -> dict[float, float]:
    """Return the value at each point by the max-min formula (Robertson, Wright and Dykstra 1988, theorem 1.4.4)."""
    points = np.unique(x)

    def mean(begin: int, end: int) -> float:
        return float(y[(x >= points[begin]) & (x <= points[end])].mean())

    return {
        float(points[i]): max(min(mean(a, b) for b in range(i, len(points))) for a in range(i + 1))
        for i in range(len(points))
    }


@pytest.mark.parametrize("seed", range(12))
def test_isotonic_regression_equals_the_max_min_formula(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(-6, 7, 25) / 2 if seed % 2 else rng.normal(size=25)  # with and without ties
    y = (rng.random(25) < 1 / (1 + np.exp(-x))).astype(float) if seed % 3 else rng.normal(size=25) + x
    knots, values = isotonic_regression(x, y)
    for point, value in least_squares(x, y).items():
        assert np.interp(point, knots, values) == pytest.approx(value, abs=1e-12)
    assert (np.diff(knots) > 0).all() and (np.diff(values) >= 0).all() and set(knots) <= set(x)


@pytest.mark.parametrize("seed", range(6))
def test_isotonic_regression_equals_scikit_learn(seed: int) -> None:
    isotonic = pytest.importorskip("sklearn.isotonic")
    rng = np.random.default_rng(seed)
    x = np.round(rng.normal(size=800), 1 if seed % 2 else 6)
    y = rng.random(800) < 1 / (1 + np.exp(-2 * x))
    theirs = isotonic.IsotonicRegression(out_of_bounds="clip").fit(x, y)
    assert np.interp(GRID, *isotonic_regression(x, y)) == pytest.approx(theirs.predict(GRID), abs=1e-12)


def test_isotonic_regression_of_a_single_point_and_of_a_falling_line() -> None:
    assert [values.tolist() for values in isotonic_regression([2.0], [0.5])] == [[2.0], [0.5]]
    assert [values.tolist() for values in isotonic_regression([1, 2, 3], [3, 2, 1])] == [[1.0, 3.0], [2.0, 2.0]]


@pytest.mark.parametrize("x, y", [([], []), ([1.0], [1.0, 2.0]), ([float("nan")], [1.0]), ([1.0], [float("inf")])])
def test_isotonic_regression_refuses_what_has_no_curve(x: list[float], y: list[float]) -> None:
    with pytest.raises(ValueError, match=r"as many scores as values|finite"):
        isotonic_regression(x, y)


def test_calibration_error_by_hand() -> None:
    # Bins of a tenth: 0.05 and 0.09 (mean 0.07, none true), 0.5 and 0.58 (0.54, half true), 1.0 (all true).
    found = calibration_error([0.05, 0.5, 0.09, 0.58, 1.0], [False, True, False, False, True])
    assert found == pytest.approx((2 * 0.07 + 2 * 0.04 + 0) / 5)
    assert calibration_error([0.5, 0.58, 0.05], [True, False, False], 1) == pytest.approx(abs(1.13 - 1) / 3)
    assert calibration_error([1.0, 0.0], [True, False]) == 0 and calibration_error([1.0, 0.0], [False, True]) == 1


def test_calibration_error_of_true_probabilities_is_small_and_of_overconfidence_is_not() -> None:
    rng = np.random.default_rng(1)
    p = rng.random(100_000)
    true = rng.random(100_000) < p
    assert calibration_error(p, true) < 0.01
    assert calibration_error(np.sqrt(p), true) == pytest.approx(2 / 3 - 1 / 2, abs=0.01)


def test_calibration_error_refuses_what_is_no_probability() -> None:
    for p, true in (([1.1], [True]), ([float("nan")], [True]), ([], []), ([0.5], [True, False])):
        with pytest.raises(ValueError, match=r"probabilit"):
            calibration_error(p, true)
