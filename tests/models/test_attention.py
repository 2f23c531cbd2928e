"""Attention against PyTorch's own and against loops over single elements."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention import kernel
from attnkit.models.attention.alignment import ALIGNMENTS, Additive, General, ScaledDot
from attnkit.models.attention.attend import attend, attend_prepared, attend_unseen
from attnkit.models.attention.distribution import DISTRIBUTIONS, softmax
from attnkit.models.attention.kernel import Scope, scaled_dot
from attnkit.models.attention.multihead import MultiHeadAttention

B, H, T, S, WIDTH = 2, 3, 4, 5, 6


@pytest.fixture(autouse=True)
def double() -> None:
    torch.manual_seed(0)


def parts(*shape: int, width: int = WIDTH) -> Tensor:
    return torch.randn(*shape, width, dtype=torch.float64)


def some_mask() -> Tensor:
    mask = torch.rand(B, 1, T, S) > 0.4
    mask[..., 0] = True
    return mask


def plain_score(name: str, align: nn.Module, q: Tensor, k: Tensor) -> float:
    """Return one score, written out from its formula."""
    if name == "dot":
        return sum(float(a * b) for a, b in zip(q, k, strict=True))
    if name == "scaled_dot":
        return sum(float(a * b) for a, b in zip(q, k, strict=True)) / math.sqrt(len(k))
    if name == "general":
        assert isinstance(align, General)
        weight = align.keys.weight.detach()
        return sum(float(q[i] * weight[i, j] * k[j]) for i in range(len(q)) for j in range(len(k)))
    assert isinstance(align, Additive)
    align.requires_grad_(False)
    total = 0.0
    for unit in range(len(align.weight)):
        inner = float(align.query.weight[unit] @ q + align.keys.weight[unit] @ k + align.keys.bias[unit])
        total += float(align.weight[unit]) * math.tanh(inner)
    return total


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ALIGNMENTS)
def test_attend_equals_a_loop_over_elements(name: str, masked: bool) -> None:
    d_query = WIDTH if name in ("dot", "scaled_dot") else 7
    align = ALIGNMENTS[name](d_query, WIDTH, 5).double()
    nn.init.uniform_(align.keys.bias) if isinstance(align, Additive) else None
    query, keys, values = parts(B, H, T, width=d_query), parts(B, H, S), parts(B, H, S, width=2)
    mask = some_mask() if masked else None
    context, weights = attend(query, keys, values, align, softmax, mask)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                allowed = [s for s in range(S) if mask is None or bool(mask[b, 0, t, s])]
                scores = {s: plain_score(name, align, query[b, h, t], keys[b, h, s]) for s in allowed}
                total = sum(math.exp(score) for score in scores.values())
                expected = [math.exp(scores[s]) / total if s in scores else 0.0 for s in range(S)]
                assert weights[b, h, t].tolist() == pytest.approx(expected, abs=1e-12)
                mean = [sum(expected[s] * float(values[b, h, s, j]) for s in range(S)) for j in range(2)]
                assert context[b, h, t].tolist() == pytest.approx(mean, abs=1e-12)
    if mask is not None:
        assert bool((weights[~mask.expand_as(weights)] == 0).all())


def test_worked_example_of_the_notes() -> None:
    keys = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]]).double()[None, None]
    query = torch.tensor([0.0, 0.0, 1.0]).double()[None, None, None]
    context, weights = attend(query, keys, keys, ScaledDot(3, 3, 0), softmax)
    assert weights.flatten().tolist() == pytest.approx([0.120, 0.120, 0.213, 0.120, 0.213, 0.213], abs=6e-4)
    assert context.flatten().tolist() == pytest.approx([0.453, 0.453, 0.640], abs=1e-3)


@pytest.mark.parametrize("name", ALIGNMENTS)
def test_prepared_keys_and_unseen_weights_give_the_same(name: str) -> None:
    align = ALIGNMENTS[name](WIDTH, WIDTH, 5).double()
    query, keys, values, mask = parts(B, H, T), parts(B, H, S), parts(B, H, S), some_mask()
    context, weights = attend_prepared(query, align.prepare(keys), values, align, softmax, mask)
    again, _ = attend(query, keys, values, align, DISTRIBUTIONS["softmax"], mask)
    torch.testing.assert_close(context, again, rtol=0, atol=1e-12)
    unseen = attend_unseen(query, keys, values, align, DISTRIBUTIONS["softmax"], mask)
    torch.testing.assert_close(context, unseen, rtol=0, atol=1e-12)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64))


@pytest.mark.parametrize("name", ["dot", "scaled_dot"])
def test_products_need_equal_widths(name: str) -> None:
    with pytest.raises(ValueError, match="one width, not 3 and 4"):
        ALIGNMENTS[name](3, 4, 5)


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("name", ALIGNMENTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_that_sees_nothing_gives_zeros(name: str, seen: bool, dtype: torch.dtype) -> None:
    align = ALIGNMENTS[name](WIDTH, WIDTH, 5).to(dtype)
    inputs = [parts(B, H, n).to(dtype).requires_grad_() for n in (T, S, S)]
    mask = torch.ones(B, 1, T, S, dtype=torch.bool)
    mask[0] = False
    mask[1, 0, 2] = False
    context, weights = attend(*inputs, align, softmax, mask)
    if not seen:
        context = attend_unseen(*inputs, align, softmax, mask)
    assert bool((context[0] == 0).all()) and bool((context[1, :, 2] == 0).all()) and bool((context[1, :, 1] != 0).all())
    assert bool((weights[0] == 0).all())
    context.sum().backward()
    for part in inputs:
        assert part.grad is not None and bool(part.grad.isfinite().all()) and bool((part.grad[0] == 0).all())


@pytest.mark.parametrize("scope", ["nothing", "mask", "causal", "both", "bias", "bias and mask", "bias and causal"])
def test_scaled_dot_equals_sdpa_in_both_forms(scope: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query, keys, values = (parts(B, H, T).requires_grad_() for _ in range(3))
    mask = (torch.rand(B, 1, 1, T) > 0.3) if scope in ("mask", "both", "bias and mask") else None
    if mask is not None:
        mask[..., 0] = True
    causal = scope in ("causal", "both", "bias and causal")
    bias = torch.randn(H, T, T, dtype=torch.float64) if "bias" in scope else None
    full = torch.zeros(B, H, T, T, dtype=torch.float64) if bias is None else bias.expand(B, H, T, T)
    full = full if mask is None else full.masked_fill(~mask, -math.inf)
    full = full.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf) if causal else full
    expected = F.scaled_dot_product_attention(query, keys, values, attn_mask=full)
    wanted = torch.autograd.grad(expected.sin().sum(), (query, keys, values))
    for form in (kernel._fused, kernel._plain):
        found = form(query, keys, values, Scope(mask, causal, bias), 0.0)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        for a, b in zip(torch.autograd.grad(found.sin().sum(), (query, keys, values)), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_nothing_is_masked_where_all_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def spy(query: Tensor, keys: Tensor, values: Tensor, **options: object) -> Tensor:
        seen.update(options)
        return query

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    scaled_dot(*(parts(B, H, T) for _ in range(3)), Scope(causal=True))
    assert seen["attn_mask"] is None and seen["is_causal"] is True


@pytest.mark.parametrize("limit", [0, kernel.PLAIN_SCORES])
def test_bfloat16_stays_near_float32(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "PLAIN_SCORES", limit)
    query, keys, values = (parts(B, H, T).float() for _ in range(3))
    scope = Scope(mask=some_mask()[:, :, :, :T], causal=True, bias=torch.randn(H, T, T))
    found = scaled_dot(query.bfloat16(), keys.bfloat16(), values.bfloat16(), scope)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), scaled_dot(query, keys, values, scope), rtol=0, atol=0.05)


def test_attention_dropout_drops_whole_weights() -> None:
    ones = torch.ones(1, 1, 2000, 8)
    for form in (kernel._fused, kernel._plain):
        found = form(torch.zeros_like(ones), torch.zeros_like(ones)[:, :, :1], ones[:, :, :1], Scope(), 0.25)
        assert found.unique().tolist() == pytest.approx([0.0, 4 / 3])
        assert float((found[..., 0] == 0).float().mean()) == pytest.approx(0.25, abs=0.05)


def copy_multihead(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    assert theirs.in_proj_weight is not None
    ours.projection.weight.data.copy_(theirs.in_proj_weight)
    ours.projection.bias.data.copy_(torch.randn_like(theirs.in_proj_bias))
    theirs.in_proj_bias.data.copy_(ours.projection.bias)
    ours.output.load_state_dict(theirs.out_proj.state_dict())


@pytest.mark.parametrize("kind", ["free", "padding", "causal", "padding and causal"])
def test_multihead_equals_torch(kind: str) -> None:
    width, heads = 12, 3
    ours, theirs = (
        MultiHeadAttention(width, heads).double(),
        nn.MultiheadAttention(width, heads, batch_first=True).double(),
    )
    copy_multihead(ours, theirs)
    x = parts(B, S, width=width)
    real = torch.tensor([[True] * S, [True] * 3 + [False] * (S - 3)])
    mask = real[:, None, None, :] if "padding" in kind else None
    future = torch.ones(S, S).triu(1).bool() if "causal" in kind else None
    padding = ~real if "padding" in kind else None
    expected, _ = theirs(x, x, x, key_padding_mask=padding, attn_mask=future, need_weights=False)
    found = ours(x, partial(scaled_dot, scope=Scope(mask, causal=future is not None)))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_multihead_over_a_memory_equals_torch() -> None:
    width, heads = 12, 3
    ours, theirs = (
        MultiHeadAttention(width, heads, 1).double(),
        nn.MultiheadAttention(width, heads, batch_first=True).double(),
    )
    weights = theirs.in_proj_weight.chunk(3)
    ours.projection.weight.data.copy_(weights[0])
    ours.output.load_state_dict(theirs.out_proj.state_dict())
    x, memory = parts(B, T, width=width), parts(B, S, width=width)
    keys, values = ((memory @ w.T).view(B, S, heads, -1).transpose(1, 2) for w in weights[1:])
    expected, _ = theirs(x, memory, memory, need_weights=False)
    found = ours(x, partial(scaled_dot, keys=keys, values=values, scope=Scope()))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_multihead_needs_whole_heads() -> None:
    with pytest.raises(ValueError, match="multiple of n_heads"):
        MultiHeadAttention(10, 3)
