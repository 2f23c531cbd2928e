"""Kernel regression as attention: against loops over the notes' formula."""

from __future__ import annotations

import math

import pytest
import torch

from attnkit.models.attention.attend import Gaussian, leave_one_out, pool


def plain(x: float, xs: list[float], ys: list[float], w: float) -> tuple[float, list[float]]:
    """Return the curve at x and the weights, exp(-((x - x_i) w)^2 / 2) over their sum, number by number."""
    kernel = [math.exp(-(((x - other) * w) ** 2) / 2) for other in xs]
    weights = [value / sum(kernel) for value in kernel]
    return sum(weight * y for weight, y in zip(weights, ys, strict=True)), weights


def points() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return 5 * torch.rand(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)


@pytest.mark.parametrize("w", [1.0, 2.5])
def test_the_curve_is_the_notes_formula(w: float) -> None:
    x, y = points()
    kernel = Gaussian(learned=w != 1).double()
    kernel.w.data.fill_(w)
    at = torch.tensor([0.0, 1.3, 9.0], dtype=torch.float64)
    found, weights = pool(at, x, y, kernel)
    for n, place in enumerate(at.tolist()):
        value, expected = plain(place, x.tolist(), y.tolist(), w)
        assert found[n].item() == pytest.approx(value, abs=1e-12)
        assert weights[n].tolist() == pytest.approx(expected, abs=1e-12)
    assert len(list(kernel.parameters())) == (w != 1)


def test_a_point_left_out_is_predicted_from_the_others() -> None:
    x, y = points()
    kernel = Gaussian(learned=True).double()
    kernel.w.data.fill_(1.7)
    found = leave_one_out(x, y, kernel)
    for n in range(len(x)):
        others = [i for i in range(len(x)) if i != n]
        value, _ = plain(float(x[n]), x[others].tolist(), y[others].tolist(), 1.7)
        assert found[n].item() == pytest.approx(value, abs=1e-12)


def test_the_width_has_the_gradient_of_its_formula() -> None:
    x, y = points()
    kernel = Gaussian(learned=True).double()

    def error(w: torch.Tensor) -> torch.Tensor:
        kernel.w.data.copy_(w)
        return (leave_one_out(x, y, kernel) - y).square().mean()

    start = torch.tensor(1.2, dtype=torch.float64)
    error(start).backward()
    numeric = (error(start + 1e-6).item() - error(start - 1e-6).item()) / 2e-6
    assert kernel.w.grad is not None and float(kernel.w.grad) == pytest.approx(numeric, rel=1e-5)


def test_vectors_are_compared_by_the_sum_of_their_squares() -> None:
    torch.manual_seed(0)
    query, keys = torch.randn(1, 2, 3, 4).double(), torch.randn(1, 2, 5, 4).double()
    expected = torch.cdist(query, keys).square() / -2
    torch.testing.assert_close(Gaussian().double()(query, keys), expected, rtol=0, atol=1e-10)
