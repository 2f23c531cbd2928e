"""Rows in vectors of 16 lanes, short ones in registers and long ones in loops, and σ, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnkit.kernels.word2vec_backend import rows

numba = pytest.importorskip("numba")

from attnkit.kernels import logistic, vector  # noqa: E402 (without numba they do nothing)
from attnkit.kernels.vector import UNROLLED  # noqa: E402


def draw(n: int, width: int) -> Any:
    made = rows(n, width)
    made[:] = np.random.default_rng(n).normal(0, 0.3, (n, width))
    return made


@numba.njit
def all_of_them(lanes: Any, matrix: Any, x: Any, out: Any, listed: Any) -> None:  # pragma: no cover (compiled)
    size = 64 * len(lanes)
    base, one = matrix.ctypes.data, x.ctypes.data
    vector.dots(lanes, base, listed, 5, one, out[0])
    vector.dots16(lanes, base, one, out[1].ctypes.data)
    vector.weigh(lanes, base, 3, (out[2].ctypes.data, 8), one + size)
    vector.sum_rows(lanes, base, listed, 5, np.float32(0.5), one + 2 * size)
    vector.copy_row(lanes, one + 3 * size, one)
    vector.add_to_row(lanes, one + 3 * size, np.float32(2.0), one + 4 * size)
    vector.clear(lanes, one + 4 * size)
    vector.update(lanes, base, listed, 5, (one, one + 4 * size), out[2])
    vector.add_to_rows(lanes, base, listed, 2, np.float32(-1.0), one)


@pytest.mark.parametrize("n_vectors", [1, UNROLLED + 1])
def test_rows_as_numpy_has_them(n_vectors: int) -> None:
    width = 16 * n_vectors
    matrix, x, out, listed = draw(16, width), draw(5, width), draw(3, 16), np.array([3, 0, 7, 7, 15, 0, 0, 0])
    start, old, steps = matrix.copy(), x.copy(), out[2].copy()
    all_of_them((np.float32(0),) * n_vectors, matrix, x, out, listed)
    near: dict[str, float] = {"rtol": 1e-4, "atol": 1e-5}
    np.testing.assert_allclose(out[0, :5], start[listed[:5]] @ old[0], **near)
    np.testing.assert_allclose(out[1], start @ old[0], **near)
    np.testing.assert_allclose(x[1], old[1] + steps[[0, 2, 4]] @ start[:3], **near)
    np.testing.assert_allclose(x[2], start[listed[:5]].sum(0) / 2, **near)
    np.testing.assert_allclose(x[3], old[0] + 2 * old[4], **near)
    moved, error = start.copy(), np.zeros(width)
    for k, row in enumerate(listed[:5]):  # a row that stands twice has moved the second time
        error += steps[k] * moved[row]
        moved[row] += steps[k] * old[0]
    np.testing.assert_allclose(x[4], error, **near)
    for row in listed[:2]:
        moved[row] -= old[0]
    np.testing.assert_allclose(matrix, moved, **near)


@numba.njit
def sigma(out: Any, n: Any, sign: Any, limit: Any) -> Any:  # pragma: no cover (compiled)
    return logistic.slopes(out.ctypes.data, n, np.float32(sign), np.float32(0.5), np.float32(limit))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_slopes_and_chances(sign: float) -> None:
    for f in np.linspace(-17.9, 17.9, 400, dtype=np.float32):
        out = rows(1, 16)[0]
        out[:] = np.nan  # beyond n nothing counts
        out[:3] = f, 0.25 * f, 1.0
        z = sign * out[:3].astype(np.float64)
        found = sigma(out, 3, sign, np.inf)
        assert found == pytest.approx(np.prod(1 / (1 + np.exp(-z))), rel=2e-6)
        np.testing.assert_allclose(out[:3], sign * 0.5 / (1 + np.exp(z)), rtol=2e-6)
        assert not out[3:].any()


def test_far_values() -> None:
    out = rows(1, 16)[0]
    out[:6] = 40.0, -40.0, 6.0, -6.0, 5.99, np.nan
    assert sigma(out, 1, 1.0, np.inf) == pytest.approx(1.0)
    out[:] = -40.0
    assert -np.log(sigma(out, 1, 1.0, np.inf)) == pytest.approx(18.0, abs=1e-5)  # so far does a term count
    out[:6] = 40.0, -40.0, 6.0, -6.0, 5.99, np.nan
    assert np.isnan(sigma(out, 6, 1.0, 6.0))
    assert not out[:4].any() and out[4] > 0 and np.isnan(out[5])
