"""Distribution functions by the conditions that define them, by hand, and where numbers are large or equal."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from attnkit.models.attention.config import DISTRIBUTION_NAMES, AttentionOptions
from attnkit.models.attention.distribution import (
    Local,
    entmax15,
    hard,
    make_distribution,
    normalize,
    sigmoid,
    softmax,
    sparsemax,
)

NO_QUERY = torch.empty(0)


def random_scores(rows: int = 400, n: int = 9, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return torch.randn(rows, n, dtype=torch.float64) * torch.rand(rows, 1, dtype=torch.float64) * 4


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    """Optimality of the projection: (s - p)·(e_j - p) <= 0 for every corner e_j, that is s_j - p_j <= p·(s - p)."""
    s = random_scores()
    p = sparsemax(s, NO_QUERY, None)
    assert bool((p >= 0).all())
    torch.testing.assert_close(p.sum(-1), torch.ones(400, dtype=torch.float64))
    residual = s - p
    assert float((residual - (p * residual).sum(-1, keepdim=True)).max()) < 1e-12
    assert 0.2 < float((p == 0).double().mean()) < 0.9  # it is sparse, and not all of it


def test_entmax_is_the_point_of_largest_score_and_entropy() -> None:
    """Optimality of max p·s + H(p), Tsallis' entropy with α = 1.5.

    The slope s - 2 √p is one number where p > 0, and at most that elsewhere (there √p = 0).
    """
    s = random_scores(seed=1)
    p = entmax15(s, NO_QUERY, None)
    assert bool((p >= 0).all())
    torch.testing.assert_close(p.sum(-1), torch.ones(400, dtype=torch.float64))
    slope = s - 2 * p.sqrt()
    inside = p > 0
    low = slope.masked_fill(~inside, math.inf).amin(-1)
    high = slope.masked_fill(~inside, -math.inf).amax(-1)
    assert float((high - low).max()) < 1e-9
    assert float((slope.masked_fill(inside, -math.inf).amax(-1) - low).max()) < 1e-9
    assert 0.1 < float((p == 0).double().mean()) < 0.9


@pytest.mark.parametrize(
    ("function", "scores", "expected"),
    [
        (sparsemax, [0.5, 0.5], [0.5, 0.5]),
        (sparsemax, [1.0, 0.5, -1.0], [0.75, 0.25, 0.0]),
        (sparsemax, [3.0, 1.0, 0.0], [1.0, 0.0, 0.0]),
        (sparsemax, [7.0, 7.0, 7.0, 0.0], [1 / 3, 1 / 3, 1 / 3, 0.0]),
        (entmax15, [0.0, 0.0], [0.5, 0.5]),
        (entmax15, [2.0, 0.0], [1.0, 0.0]),
        (entmax15, [4.0, 4.0, -9.0], [0.5, 0.5, 0.0]),
        # (1/2 - τ)² + τ² = 1 for s = (1, 0): τ = (1 - √7) / 4
        (entmax15, [1.0, 0.0], [(1 + math.sqrt(7)) ** 2 / 16, (1 - math.sqrt(7)) ** 2 / 16]),
        (hard, [1.0, 3.0, 3.0], [0.0, 1.0, 0.0]),
        (normalize, [1.0, 3.0, 0.0], [0.25, 0.75, 0.0]),
        (normalize, [0.0, 0.0], [0.0, 0.0]),
        (sigmoid, [0.0, math.log(3)], [0.5, 0.75]),
        (softmax, [0.0, math.log(3)], [0.25, 0.75]),
    ],
)
def test_by_hand(function: object, scores: list[float], expected: list[float]) -> None:
    found = function(torch.tensor([scores], dtype=torch.float64), NO_QUERY, None)  # type: ignore[operator]
    assert found[0].tolist() == pytest.approx(expected, abs=1e-12)


def test_hard_passes_the_gradient_of_softmax() -> None:
    """By hand: the slope of Σ g_j p_j over s_i is p_i (g_i - Σ g_j p_j) with p the softmax, of the keys seen alone."""
    scores = torch.tensor([[0.3, -1.0, 2.0, 0.5]], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False, True]])
    g = [1.0, 2.0, -3.0, 0.5]
    weights = hard(scores, NO_QUERY, mask)
    assert weights.tolist() == [[0.0, 0.0, 0.0, 1.0]]
    (weights * torch.tensor(g, dtype=torch.float64)).sum().backward()
    powers = {i: math.exp(scores[0, i].item()) for i in (0, 1, 3)}
    p = {i: power / sum(powers.values()) for i, power in powers.items()}
    mean = sum(g[i] * p[i] for i in p)
    expected = [p[i] * (g[i] - mean) if i in p else 0.0 for i in range(4)]
    assert scores.grad is not None and scores.grad[0].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", DISTRIBUTION_NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_large_numbers_stay_finite(name: str, dtype: torch.dtype) -> None:
    """As large as the type holds, a row all alike, and one that sees nothing; masked keys may be anything finite."""
    torch.manual_seed(0)
    largest = torch.finfo(dtype).max / 8
    rows = [[largest, -largest, 0.0, 1.0], [3e4, 3e4 + 512, -3e4, 1e4], [5.0] * 4, [largest] * 4]
    if name == "normalize":
        rows = [[abs(x) for x in row] for row in rows]
    scores = torch.tensor(rows, dtype=dtype)[None, None].requires_grad_()
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[3] = False
    mask[0, 3] = False
    query = torch.randn(1, 1, 4, 3, dtype=dtype)
    distribute = make_distribution(name, 3)  # type: ignore[arg-type]
    if isinstance(distribute, nn.Module):
        distribute.to(dtype)
    weights = distribute(scores, query, mask)
    assert bool(weights.isfinite().all())
    assert bool((weights[..., 3, :] == 0).all()) and bool((weights[..., 0, 3] == 0).all())
    weights.square().sum().backward()
    assert scores.grad is not None and bool(scores.grad.isfinite().all())
    assert bool((scores.grad[..., 3, :] == 0).all())


def make_local(window: int, strength: float) -> Local:
    """Return a window whose centre is 6 · sigmoid(strength · tanh(q))-like for q of one number."""
    local = Local(1, AttentionOptions(window=window, d_hidden=1), 1).double()
    nn.init.ones_(local.query.weight)
    nn.init.constant_(local.weight, strength)
    return local


def test_local_looks_around_its_centre() -> None:
    """A query of 0 puts the centre in the middle of six keys, p = 3; equal scores leave the Gaussian alone."""
    local = make_local(2, 5.0)
    weights = local(torch.zeros(1, 1, 1, 6).double(), torch.zeros(1, 1, 1, 1).double(), None)
    gauss = [math.exp(-((s - 3) ** 2) / 2) / 5 if abs(s - 3) <= 2 else 0.0 for s in range(6)]
    assert weights.flatten().tolist() == pytest.approx(gauss, abs=1e-12)


def test_local_follows_its_query_from_end_to_end() -> None:
    local = make_local(1, 50.0)
    query = torch.tensor([-1.0, 1.0]).double().view(1, 1, 2, 1)
    weights = local(torch.zeros(1, 1, 2, 6).double(), query, None)[0, 0]
    assert weights[0].nonzero().flatten().tolist() == [0, 1] and weights[1].nonzero().flatten().tolist() == [5]


def test_local_counts_the_keys_that_a_row_sees() -> None:
    """Padding after the keys, before them, and a future change nothing."""
    torch.manual_seed(0)
    local = make_local(2, 1.0)
    scores, query = torch.randn(1, 1, 1, 4).double(), torch.randn(1, 1, 1, 1).double()
    alone = local(scores, query, None)
    wide = torch.randn(1, 1, 1, 9).double()
    for first in (0, 3):
        padded, mask = wide.clone(), torch.zeros(1, 1, 1, 9, dtype=torch.bool)
        padded[..., first : first + 4] = scores
        mask[..., first : first + 4] = True
        found = local(padded, query, mask)
        torch.testing.assert_close(found[..., first : first + 4], alone, rtol=0, atol=1e-12)
        assert (found.sum() - found[..., first : first + 4].sum()).item() == 0


def test_local_counts_every_key_of_a_mask_that_names_none() -> None:
    """A mask of one True, broadcast over the keys, is no mask; one False hides all of them."""
    torch.manual_seed(0)
    local = make_local(2, 1.0)
    scores, query = torch.randn(2, 1, 3, 20).double(), torch.randn(2, 1, 3, 1).double()
    alone = local(scores, query, None)
    for shape in ((1,), (1, 1, 1, 1), (2, 1, 3, 1)):
        torch.testing.assert_close(local(scores, query, torch.ones(shape, dtype=torch.bool)), alone, rtol=0, atol=1e-12)
    one = local(scores, query, torch.tensor([True, False]).view(2, 1, 1, 1))
    torch.testing.assert_close(one[0], alone[0], rtol=0, atol=1e-12)
    assert bool((one[1] == 0).all())


@pytest.mark.parametrize("name", DISTRIBUTION_NAMES)
@pytest.mark.parametrize("masked", [False, True])
def test_no_keys_give_an_empty_row(name: str, masked: bool) -> None:
    scores = torch.randn(2, 1, 3, 0, requires_grad=True)
    mask = torch.ones(2, 1, 3, 0, dtype=torch.bool) if masked else None
    weights = make_distribution(name, 4)(scores, torch.randn(2, 1, 3, 4), mask)  # type: ignore[arg-type]
    assert weights.shape == (2, 1, 3, 0)
    assert bool((weights @ torch.randn(2, 1, 0, 5) == 0).all())
    weights.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1e-20, 1e-30, 1e-36, 1e-39])
def test_normalize_has_finite_slopes_down_to_the_smallest_numbers(size: float, dtype: torch.dtype) -> None:
    """By hand: the slope of w_0 = s_0 / Σ s is (1 - w_0) / Σ s, -w_0 / Σ s; where 1 / Σ s nears infinity it is 0."""
    scores = torch.tensor([size, 3 * size], dtype=dtype, requires_grad=True)
    weights = normalize(scores, NO_QUERY, None)
    assert weights.tolist() == pytest.approx([0.25, 0.75], rel=0.01)
    weights[0].backward()
    slope = 1 / (4 * size) if size > 1e-35 else 0.0
    assert scores.grad is not None
    assert scores.grad.tolist() == pytest.approx([0.75 * slope, -0.25 * slope], rel=0.02)
