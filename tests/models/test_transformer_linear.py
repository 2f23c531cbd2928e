"""Linear maps through oneDNN equal F.linear, with gradients and packed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models import linear
from attnkit.models.config import RnnConfig, TransformerConfig
from attnkit.models.linear import Linear, PackedLinear, pack
from attnkit.models.translation import build_model
from attnkit.runtime.devices import round_rows

needs_onednn = pytest.mark.skipif(not linear.HAS_PACKING, reason="no oneDNN products here")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("least", [0, linear.MIN_PRODUCT])
@pytest.mark.parametrize("shape", [(3, 5, 24), (16, 24), (1, 24), (7, 19, 24)])
def test_product_and_gradients_equal_torch(
    shape: tuple[int, ...], bias: bool, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "MIN_PRODUCT", least)
    torch.manual_seed(0)
    module, x = Linear(24, 40, bias=bias), torch.randn(shape, requires_grad=True)
    inputs = [x, *module.parameters()]
    found, expected = module(x), F.linear(x, module.weight, module.bias)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    mine = torch.autograd.grad(found.sin().sum(), inputs)
    theirs = torch.autograd.grad(expected.sin().sum(), inputs)
    for a, b in zip(mine, theirs, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_rounded_numbers_are_few_and_little_larger() -> None:
    for low in (8, 64, 4096):
        rounded = [round_rows(n) for n in range(low, 2 * low)]
        assert all(n <= found <= 1.125 * n for n, found in enumerate(rounded, low))
        assert len(set(rounded)) <= 9
    assert [round_rows(n) for n in range(1, 17)] == [*range(1, 17)]


@needs_onednn
@pytest.mark.parametrize("dtype", linear.PRODUCT_DTYPES)
def test_products_of_training_have_few_numbers_of_rows(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    real = linear.linear_product
    monkeypatch.setattr(linear, "linear_product", lambda x, *rest: seen.add(len(x)) or real(x, *rest))
    module = Linear(64, 64).to(dtype)
    for rows in range(900, 1025):
        x = torch.randn(rows, 64, dtype=dtype, requires_grad=True)
        y = module(x)
        assert y.shape == (rows, 64)
        y.sum().backward()
        assert x.grad is not None and x.grad.shape == x.shape
    inputs = {rows for rows in seen if rows != 64}  # in float32 the gradient of the weight has rows of its own: 64
    assert inputs == {960, 1024}


@needs_onednn
@pytest.mark.parametrize("dtype", linear.PRODUCT_DTYPES)
@pytest.mark.parametrize("trained", ["", "x", "weight", "bias", "x weight", "x bias", "weight bias", "x weight bias"])
def test_each_gradient_alone_equals_torch_and_saves_what_it_needs(
    dtype: torch.dtype, trained: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No copy of the input is saved, and of a frozen weight not even the input."""
    monkeypatch.setattr(linear, "MIN_PRODUCT", 0)
    torch.manual_seed(0)
    names = ("x", "weight", "bias")
    given = [torch.randn(shape, dtype=dtype) for shape in ((7, 19, 24), (40, 24), (40,))]
    ours, theirs = (
        [one.detach().clone().requires_grad_(name in trained.split()) for name, one in zip(names, given, strict=True)]
        for _ in range(2)
    )
    saved: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        y = linear.linear(*ours)
    places = [tensor.untyped_storage().data_ptr() for tensor in saved]
    needed = [ours[0]] * ("weight" in trained) + [ours[1]] * ("x" in trained)
    assert sorted(places) == sorted(one.untyped_storage().data_ptr() for one in needed)
    expected = F.linear(*theirs)
    upstream = torch.randn(expected.shape, dtype=dtype)
    tolerance = {"rtol": 0.0, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.02, "atol": 0.2}
    torch.testing.assert_close(y, expected, **tolerance)
    if trained:
        for one in (y, expected):
            one.backward(upstream)
    for own, other in zip(ours, theirs, strict=True):
        assert (own.grad is None) == (other.grad is None)
        if own.grad is not None:
            torch.testing.assert_close(own.grad, other.grad, **tolerance)


@needs_onednn
def test_large_products_go_to_onednn_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[torch.dtype, int]] = []
    real = linear.linear_product
    monkeypatch.setattr(linear, "linear_product", lambda x, *rest: calls.append((x.dtype, len(x))) or real(x, *rest))
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        Linear(256, 512).to(dtype)(torch.randn(8, 256, dtype=dtype))
    assert calls == [(dtype, 8) for dtype in linear.PRODUCT_DTYPES]
    calls.clear()
    Linear(512, 512)(torch.randn(linear.FEW_ROWS - 1, 512))
    for rows in (15, 16):  # 16 * 32 * 1024 is MIN_PRODUCT
        Linear(32, 1024)(torch.randn(rows, 32))
    assert calls == [(torch.float32, 16)]
    calls.clear()
    packed = PackedLinear(nn.Linear(32, 1024))
    with torch.inference_mode():
        for rows in (1, 15, 16):
            packed(torch.randn(rows, 32))
    assert calls == [(torch.float32, 16)]
    wide = PackedLinear(nn.Linear(2048, 2048))
    with torch.inference_mode():
        wide(torch.randn(1, 2048))  # a single row, whatever its size
        assert len(calls) == 1
        wide(torch.randn(2, 2048))
    assert len(calls) == 2


@needs_onednn
def test_the_result_may_be_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "MIN_PRODUCT", 0)
    torch.manual_seed(0)
    module, x = Linear(24, 40), torch.randn(2, 8, 24, requires_grad=True)
    (found,) = torch.autograd.grad(F.relu_(module(x)).square().sum(), x)
    (expected,) = torch.autograd.grad(F.relu(F.linear(x, module.weight, module.bias)).square().sum(), x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


@needs_onednn
def test_frozen_weights_take_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "MIN_PRODUCT", 0)
    module, x = Linear(24, 40).requires_grad_(False), torch.randn(16, 24, requires_grad=True)
    module(x).sum().backward()
    assert x.grad is not None and module.weight.grad is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("config", [TransformerConfig(d_model=32, d_ff=48), RnnConfig(d_model=32, d_hidden=32)])
@torch.inference_mode()
def test_a_packed_model_says_the_same(config: TransformerConfig | RnnConfig, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = build_model(config, 50, 50).to(dtype).eval()
    packed = pack(model)
    has_packing = linear.HAS_PACKING and dtype in linear.PRODUCT_DTYPES
    assert not has_packing or any(isinstance(module, PackedLinear) for module in packed.modules())
    assert not any(isinstance(module, PackedLinear) for module in model.modules())
    src, prev = torch.randint(4, 50, (4, 6)), torch.ones(4, 1, dtype=torch.int64)
    logits = []
    for one in (model, packed):
        hidden, state = one.step(prev, one.start(src, None, 2, 5))
        hidden, state = one.step(prev.expand(4, 2), state.reorder_beams(torch.zeros(4, 2, dtype=torch.int64)))
        logits.append((one.head(hidden), one.head(hidden, torch.tensor([7, 9]))))
    tolerance = 1e-5 if dtype == torch.float32 else 0.1
    for a, b in zip(*logits, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=tolerance)


@needs_onednn
@pytest.mark.parametrize("rows", [1, 2, 70])
@pytest.mark.parametrize("least", [0, linear.MIN_PRODUCT])
def test_packed_product_equals_torch(rows: int, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "MIN_PRODUCT", least)
    torch.manual_seed(0)
    for bias in (True, False):
        plain = nn.Linear(24, 40, bias=bias)
        x = torch.randn(rows, 24)
        with torch.inference_mode():
            torch.testing.assert_close(PackedLinear(plain)(x), plain(x), rtol=0, atol=1e-5)


def test_packing_copies_and_keeps_ties() -> None:
    model = build_model(TransformerConfig(d_model=32, d_ff=48), 50, 50)
    packed = pack(model)
    assert packed.output.weight is packed.decoder.embedding.words.weight
    assert model.output.weight.requires_grad and model.training
    if linear.HAS_PACKING:
        assert packed.output.weight is not model.output.weight and not packed.output.weight.requires_grad
        assert set(packed.state_dict()) == set(model.state_dict())


def test_types_that_onednn_refuses_here_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    # As on processors without AVX-512, where oneDNN has no product in bfloat16.
    monkeypatch.setattr(linear, "PRODUCT_DTYPES", {torch.float32})
    module = Linear(24, 40).to(torch.bfloat16)
    monkeypatch.setattr(linear, "linear_product", lambda *_: pytest.fail("a product of oneDNN in bfloat16"))
    x = torch.randn(16, 24, dtype=torch.bfloat16, requires_grad=True)
    module(x).sum().backward()
    assert module.weight.grad is not None
    with torch.inference_mode():
        torch.testing.assert_close(module(x), nn.functional.linear(x, module.weight, module.bias))
    assert pack(module) is module


def test_what_gains_nothing_is_left_alone() -> None:
    model = build_model(TransformerConfig(d_model=32, d_ff=48), 50, 50).double()
    assert pack(model) is model
