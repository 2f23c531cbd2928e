"""Attention by the kernel for passages of many lengths. It exists on CUDA alone: a plain form represents it here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from packed_models import BOUNDS, PASSAGES, SIZES, make
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from attnkit.models import layers as passages
from attnkit.models.attention import attend
from attnkit.models.layers import PackedLayout


class Plain:
    """What the kernel is documented to compute, passage by passage; counts its calls."""

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, begins: Tensor, same: Tensor, longest: int, longest_key: int, **rest: Any
    ) -> Tensor:
        assert begins.dtype == torch.int32 and same is begins and longest == longest_key
        assert (begins.diff() <= longest).all() and q.shape == k.shape == v.shape and q.dim() == 3
        self.n_calls += 1
        parts = []
        for first, last in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
            own = [part[first:last].transpose(0, 1) for part in (q, k, v)]
            parts.append(F.scaled_dot_product_attention(*own, is_causal=rest["window_size"] == (-1, 0)).transpose(0, 1))
        return torch.cat(parts)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Plain:
    kernel = Plain()
    monkeypatch.setattr(attend, "_kernel", lambda: kernel)
    monkeypatch.setattr(passages, "supports_varlen", lambda x, d_head, dropout: not dropout)
    return kernel


@pytest.mark.parametrize("positions", ["learned", "rotary", "sinusoidal"])
@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_it_gives_what_masks_give_and_the_same_gradients(kind: str, positions: str, plain: Plain) -> None:
    model, ids = make(kind, positions=positions), torch.randint(4, 50, (3, 12))
    found = []
    for bounds in (BOUNDS, None):
        model.zero_grad()
        hidden = model.hidden(ids, PackedLayout.packed(1, PASSAGES, bounds))
        hidden.square().sum().backward()
        found.append([hidden.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
        assert plain.n_calls == SIZES["n_layers"]  # whole rows and mixed ones in one call, and none without bounds
    for ragged, masked in zip(*found, strict=True):
        torch.testing.assert_close(ragged, masked, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "fields",
    [
        {"positions": "alibi"},
        {"alignment": "additive"},
        {"alignment": ("scaled_dot", "additive", "general", "similarity")},
        {"attention_dropout": 0.1},
    ],
    ids=str,
)
def test_what_it_does_not_know_takes_masks(fields: dict[str, Any], plain: Plain) -> None:
    model = make("bert", **fields)
    model.hidden(torch.randint(4, 50, (3, 12)), PackedLayout.packed(1, PASSAGES, BOUNDS))
    assert not plain.n_calls


def test_weights_are_shown_as_they_are_without_it(plain: Plain) -> None:
    model, ids = make("bert"), torch.randint(4, 50, (3, 12))
    found = [
        model.attention_weights(ids, PackedLayout.packed(1, PASSAGES, bounds))["encoder"] for bounds in (BOUNDS, None)
    ]
    assert torch.equal(*found) and not plain.n_calls


def test_a_cpu_never_takes_it() -> None:
    assert not attend.supports_varlen(torch.zeros(1, dtype=torch.bfloat16), 64, 0.0)


@pytest.mark.parametrize(
    ("x", "d_head", "dropout", "taken"),
    [
        (torch.bfloat16, 64, 0.0, True),
        (torch.float32, 64, 0.0, False),
        (torch.bfloat16, 64, 0.1, False),
        (torch.bfloat16, 20, 0.0, False),
        (torch.bfloat16, 264, 0.0, False),
    ],
)
def test_where_it_serves(
    x: torch.dtype, d_head: int, dropout: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnCuda:
        dtype, device = x, torch.device("cuda")

    for capability in ((9, 0), (7, 5)):
        attend._is_served.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        served = taken and capability == (9, 0)
        assert attend.supports_varlen(OnCuda(), d_head, dropout) is served  # type: ignore[arg-type]
    attend._is_served.cache_clear()


@pytest.mark.parametrize("causal", [False, True])
def test_pytorchs_kernel_takes_what_it_is_given(causal: bool) -> None:
    """Its own check of shapes and types, which needs no GPU."""
    assert attend._kernel() is varlen_attn
    q, k, v = (torch.empty(3, 4, 12, 8, dtype=torch.bfloat16, device="meta") for _ in range(3))
    bounds = torch.empty(8, dtype=torch.int32, device="meta")
    assert attend.varlen_attention(q, k, v, bounds, causal).shape == (3, 4, 12, 8)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("kind", ["bert", "gpt"])
def test_on_a_gpu_it_gives_what_masks_give(kind: str) -> None:
    model, ids = make(kind).to("cuda", torch.bfloat16), torch.randint(4, 50, (3, 12), device="cuda")
    layouts = [PackedLayout.packed(1, PASSAGES, bounds).to("cuda") for bounds in (BOUNDS, None)]
    ragged, masked = (model.hidden(ids, layout).float() for layout in layouts)
    exact = model.float().hidden(ids, layouts[1])
    assert float((ragged - exact).norm() / exact.norm()) < 1.5 * float((masked - exact).norm() / exact.norm()) + 1e-3
