"""linear_cross_entropy against torch's own cross-entropy."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from attnkit.training.losses import linear_cross_entropy

N, D, V = 23, 7, 31


def make(dtype: torch.dtype = torch.float64, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(3)
    hidden = (torch.randn(N, D, generator=draw, dtype=torch.float64) * scale).to(dtype).requires_grad_()
    weight = torch.randn(V, D, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()
    bias = torch.randn(V, generator=draw, dtype=torch.float64).to(dtype).requires_grad_()
    return hidden, weight, bias, torch.randint(0, V, (N,), generator=draw)


def reference(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(F.linear(hidden, weight, bias), targets, reduction="sum", label_smoothing=smoothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
@pytest.mark.parametrize("chunk_rows", [1, 5, 23, None])
@pytest.mark.parametrize("scale", [1.0, 300.0])  # 300: probabilities underflow to zero
def test_equals_torch(smoothing: float, chunk_rows: int | None, scale: float) -> None:
    hidden, weight, bias, targets = make(scale=scale)
    inputs = (hidden, weight, bias)
    expected = reference(*inputs, targets, smoothing)
    expected_gradients = torch.autograd.grad(expected * 0.37, inputs)
    total, nll = linear_cross_entropy(*inputs, targets, smoothing, chunk_rows)
    gradients = torch.autograd.grad(total * 0.37, inputs)
    torch.testing.assert_close(total, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(nll, reference(*inputs, targets, 0.0).detach(), rtol=1e-10, atol=1e-10)
    for ours, theirs in zip(gradients, expected_gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10 * scale)
    assert not nll.requires_grad


@pytest.mark.parametrize("chunk_rows", [3, None])
def test_float32_equals_float64(chunk_rows: int | None) -> None:
    """Float32 may take another library's products."""
    inputs = make(torch.float32)
    exact = [x.detach().double().requires_grad_() for x in inputs[:3]]
    expected = torch.autograd.grad(reference(*exact, inputs[3], 0.1), exact)
    total, _ = linear_cross_entropy(*inputs, 0.1, chunk_rows)
    for ours, theirs in zip(torch.autograd.grad(total, inputs[:3]), expected, strict=True):
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 1e-6 * theirs.norm()


def test_without_bias() -> None:
    hidden, weight, _, targets = make()
    ours = torch.autograd.grad(linear_cross_entropy(hidden, weight, None, targets, 0.1, 4)[0], (hidden, weight))
    theirs = torch.autograd.grad(reference(hidden, weight, None, targets, 0.1), (hidden, weight))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_gradient_goes_where_it_is_wanted() -> None:
    hidden, weight, bias, targets = make()
    total, _ = linear_cross_entropy(hidden, weight.detach(), bias.detach(), targets, 0.1)
    total.backward()
    assert hidden.grad is not None
    with torch.no_grad():
        alone, _ = linear_cross_entropy(hidden, weight, bias, targets, 0.1)
    assert not alone.requires_grad
    assert alone == total


def test_a_retained_graph_runs_again() -> None:
    hidden, weight, bias, targets = make()
    total, _ = linear_cross_entropy(hidden, weight, bias, targets, 0.1)
    first = torch.autograd.grad(total * 2, (hidden, weight, bias), retain_graph=True)
    again = torch.autograd.grad(total * 2, (hidden, weight, bias))
    for one, two in zip(first, again, strict=True):
        assert torch.equal(one, two)


def test_no_rows() -> None:
    hidden, weight, bias, _ = make()
    empty = hidden.detach()[:0].requires_grad_()
    total, nll = linear_cross_entropy(empty, weight, bias, torch.zeros(0, dtype=torch.int64), 0.1)
    total.backward()
    assert total == 0 == nll
    assert weight.grad is not None
    assert not weight.grad.any()


def test_bfloat16_is_as_good_as_torch() -> None:
    low = make(torch.bfloat16)
    high = [x.detach().double().requires_grad_() for x in low[:3]]
    exact = reference(*high, low[3], 0.1)
    exact_gradients = torch.autograd.grad(exact, high)

    def errors(total: Tensor) -> list[float]:
        found = torch.autograd.grad(total, low[:3])
        return [float((g.double() - e).norm() / e.norm()) for g, e in zip(found, exact_gradients, strict=True)]

    total, _ = linear_cross_entropy(*low, 0.1, 4)
    assert total.dtype == torch.float32
    logits = F.linear(low[0], low[1], low[2]).float()
    plain = F.cross_entropy(logits, low[3], reduction="sum", label_smoothing=0.1)
    assert abs(total.item() - exact.item()) < 3e-3 * exact.item()
    for ours, theirs in zip(errors(total), errors(plain), strict=True):
        assert ours < max(1.5 * theirs, 4e-3)


class _Largest(TorchDispatchMode):
    """Remember the most elements that any operation's result had."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.numel = max(self.numel, result.numel())
        return result


def test_all_logits_never_exist() -> None:
    hidden, weight, bias, targets = make()
    with _Largest() as largest:
        linear_cross_entropy(hidden, weight, bias, targets, 0.1, 3)[0].backward()
    assert largest.numel <= max(3 * V, weight.numel())
