"""The loss of R-Drop against its definition in torch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnkit.training.consistency import linear_consistency
from attnkit.training.losses import linear_cross_entropy

N, D, V = 23, 7, 31


def make(dtype: torch.dtype = torch.float64, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(5)
    hidden = (torch.randn(2 * N, D, generator=draw, dtype=torch.float64) * scale).to(dtype).requires_grad_()
    weight = torch.randn(V, D, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()
    bias = torch.randn(V, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden, weight, bias, torch.randint(0, V, (N,), generator=draw)


def reference(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, alpha: float, smoothing: float
) -> Tensor:
    """Half of equation 4: -log p1 - log p2 + alpha/2 (KL(p1, p2) + KL(p2, p1))."""
    first, second = F.linear(hidden, weight, bias).log_softmax(1).chunk(2)
    entropies = [F.cross_entropy(one, targets, reduction="sum", label_smoothing=smoothing) for one in (first, second)]
    divergences = [
        F.kl_div(one, other, reduction="sum", log_target=True) for one, other in ((first, second), (second, first))
    ]
    return (sum(entropies) + alpha / 2 * sum(divergences)) / 2


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk_rows", [1, 5, 23, None])
@pytest.mark.parametrize("scale", [0.1, 3.0, 100.0])  # 100: probabilities underflow to zero
@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_equals_torch(smoothing: float, chunk_rows: int | None, scale: float, alpha: float) -> None:
    *inputs, targets = make(scale=scale)
    expected = reference(*inputs, targets, alpha, smoothing)
    expected_gradients = torch.autograd.grad(expected * 0.37, inputs)
    total, nll = linear_consistency(*inputs, targets, alpha, smoothing, chunk_rows)
    gradients = torch.autograd.grad(total * 0.37, inputs)
    torch.testing.assert_close(total, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(nll, reference(*inputs, targets, 0.0, 0.0).detach(), rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10 * scale)
    assert not nll.requires_grad


def test_equal_passes_have_the_loss_of_one() -> None:
    hidden, weight, bias, targets = make()
    both = torch.cat([hidden[:N], hidden[:N]])
    total, nll = linear_consistency(both, weight, bias, targets, 5.0, 0.1)
    one_total, one_nll = linear_cross_entropy(hidden[:N], weight, bias, targets, 0.1)
    torch.testing.assert_close((total, nll), (one_total, one_nll), rtol=1e-12, atol=1e-12)


def test_low_precision_is_near_float64() -> None:
    *inputs, targets = make(torch.bfloat16)
    exact = [one.detach().double().requires_grad_() for one in inputs]
    expected = torch.autograd.grad(reference(*exact, targets, 2.0, 0.1), exact)
    total, _ = linear_consistency(*inputs, targets, 2.0, 0.1, 4)
    assert total.dtype == torch.float32
    for ours, theirs in zip(torch.autograd.grad(total, inputs), expected, strict=True):
        assert ours.dtype == torch.bfloat16
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


def test_without_bias_rows_or_gradients() -> None:
    hidden, weight, bias, targets = make()
    ours = torch.autograd.grad(linear_consistency(hidden, weight, None, targets, 5.0, 0.1, 4)[0], (hidden, weight))
    theirs = torch.autograd.grad(reference(hidden, weight, None, targets, 5.0, 0.1), (hidden, weight))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    total, nll = linear_consistency(hidden[:0], weight, bias, targets[:0], 5.0, 0.1)
    assert (total.item(), nll.item()) == (0.0, 0.0)
    with torch.no_grad():
        alone, _ = linear_consistency(hidden, weight, bias, targets, 5.0, 0.1)
    torch.testing.assert_close(alone, reference(hidden, weight, bias, targets, 5.0, 0.1).detach())
    with pytest.raises(ValueError, match="45 rows of features for 23 targets"):
        linear_consistency(hidden[1:], weight, bias, targets, 5.0)
