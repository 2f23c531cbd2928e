"""The one pair that has a fused form, and multi-head attention, against PyTorch's own."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnkit.models.attention import attend as kernel
from attnkit.models.attention.alignment import ALIGNMENTS, Kernel, make_alignment
from attnkit.models.attention.attend import AttentionFunction, AttentionScope, attend, scaled_dot
from attnkit.models.attention.config import AlignmentName, AttentionOptions
from attnkit.models.attention.distribution import softmax
from attnkit.models.attention.multihead import HeadGroups, MultiHeadAttention, attend_within

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


def test_worked_example_of_the_notes() -> None:
    keys = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1]]).double()[None, None]
    query = torch.tensor([0.0, 0.0, 1.0]).double()[None, None, None]
    context, weights = attend(query, keys, keys, make_alignment("scaled_dot", 3, 3), softmax)
    assert weights.flatten().tolist() == pytest.approx([0.120, 0.120, 0.213, 0.120, 0.213, 0.213], abs=6e-4)
    assert context.flatten().tolist() == pytest.approx([0.453, 0.453, 0.640], abs=1e-3)


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("name", ALIGNMENTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_row_that_sees_nothing_gives_zeros(name: str, seen: bool, dtype: torch.dtype) -> None:
    align = make_alignment(name, WIDTH, WIDTH, n_heads=H).to(dtype)
    inputs = [parts(B, H, n).to(dtype).requires_grad_() for n in (T, S, S)]
    mask = torch.ones(B, 1, T, S, dtype=torch.bool)
    mask[0] = False
    mask[1, 0, 2] = False
    context, weights = attend(*inputs, align, softmax, mask)
    if not seen:
        context = AttentionFunction(align, softmax).context(*inputs, AttentionScope(mask))
    assert bool((context[0] == 0).all()) and bool((context[1, :, 2] == 0).all()) and bool((context[1, :, 1] != 0).all())
    assert bool((weights[0] == 0).all())
    context.sum().backward()
    used = [part for part in inputs if part.grad is not None]
    assert len(used) == {"location": 2, "feature": 2}.get(name, 3)
    for part in used:
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
    for plain in (False, True):
        monkeypatch.setattr(kernel, "prefers_matmul", lambda *_, plain=plain: plain)
        found = scaled_dot(query, keys, values, AttentionScope(mask, causal, bias), 0.0)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        for a, b in zip(torch.autograd.grad(found.sin().sum(), (query, keys, values)), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_nothing_is_masked_where_all_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def spy(query: Tensor, keys: Tensor, values: Tensor, **options: object) -> Tensor:
        seen.update(options)
        return query

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    scaled_dot(*(parts(B, H, T) for _ in range(3)), AttentionScope(causal=True))
    assert seen["attn_mask"] is None and seen["is_causal"] is True


@pytest.mark.parametrize("limit", [0, kernel.PLAIN_SCORES])
def test_bfloat16_stays_near_float32(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "PLAIN_SCORES", limit)
    query, keys, values = (parts(B, H, T).float() for _ in range(3))
    scope = AttentionScope(mask=some_mask()[:, :, :, :T], causal=True, bias=torch.randn(H, T, T))
    found = scaled_dot(query.bfloat16(), keys.bfloat16(), values.bfloat16(), scope)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), scaled_dot(query, keys, values, scope), rtol=0, atol=0.05)


def test_attention_dropout_drops_whole_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    ones = torch.ones(1, 1, 2000, 8)
    zeros = torch.zeros_like(ones)
    for plain in (False, True):
        monkeypatch.setattr(kernel, "prefers_matmul", lambda *_, plain=plain: plain)
        found = scaled_dot(zeros, zeros[:, :, :1], ones[:, :, :1], AttentionScope(), 0.25)
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
    found = ours(x, attend_within(AttentionScope(mask, causal=future is not None)))
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
    mix = attend_within(AttentionScope())
    found = ours(x, lambda heads, query: mix(heads, query, keys, values))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_multihead_needs_whole_heads() -> None:
    with pytest.raises(ValueError, match="multiple of n_heads"):
        MultiHeadAttention(10, 3)


MIXED = ["scaled_dot", "additive", "dot", "general", "additive", "location"]


def copy_head(into: nn.Module, source: nn.Module, place: int) -> None:
    """Give a group of one head the weights of one head of a group of several."""
    n_heads = len(source.indices)
    for name, parameter in into.named_parameters():
        given = source.get_parameter(name)
        whole = given.view(n_heads, -1) if given.dim() == 1 or n_heads == 1 else given
        parameter.data.copy_(whole[place].view(parameter.shape))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("unlike", [False, True], ids=["one distribution", "several"])
def test_mixed_heads_are_single_heads_side_by_side(causal: bool, unlike: bool) -> None:
    """Each head alone, with its own weights and bias, gives its part: those alike are computed together unseen."""
    distributions = ["softmax", "softmax", "sparsemax", "softmax", "local", "softmax"] if unlike else "softmax"
    heads = HeadGroups(6, 4, MIXED, distributions).double()
    for parameter in heads.parameters():
        nn.init.normal_(parameter)
    query, keys, values = (torch.randn(B, 6, S, 4, dtype=torch.float64) for _ in range(3))
    mask = torch.rand(B, 1, S, S) > 0.3
    mask[..., 0] = True
    bias = torch.randn(6, S, S, dtype=torch.float64)
    scope = AttentionScope(mask, causal, bias)
    context, weights = heads.context(query, keys, values, scope), heads.weights(query, heads.prepare(keys), scope)
    torch.testing.assert_close(context, weights @ values, rtol=0, atol=1e-12)
    assert len(heads.head_groups) == (6 if unlike else 5)
    for head, name in enumerate(MIXED):
        single = HeadGroups(1, 4, name, distributions[head] if unlike else "softmax").double()
        group = next(group for group in heads.head_groups if head in group.indices)
        copy_head(single.head_groups[0], group, group.indices.index(head))
        one = slice(head, head + 1)
        found = single.context(query[:, one], keys[:, one], values[:, one], AttentionScope(mask, causal, bias[one]))
        torch.testing.assert_close(context[:, one], found, rtol=0, atol=1e-12)


def test_heads_of_one_function_have_weights_of_their_own() -> None:
    heads = HeadGroups(3, 4, "general").double()
    x = torch.randn(1, 1, S, 4, dtype=torch.float64).expand(1, 3, S, 4)
    weights = heads.weights(x, heads.prepare(x), AttentionScope())
    assert not torch.allclose(weights[:, 0], weights[:, 1])


def test_multihead_takes_a_name_or_one_a_head() -> None:
    x = torch.randn(B, S, 24)
    torch.manual_seed(1)
    named = MultiHeadAttention(24, 6, alignment="additive", distribution="entmax15")
    torch.manual_seed(1)
    listed = MultiHeadAttention(24, 6, alignment=["additive"] * 6, distribution=["entmax15"] * 6)
    assert torch.equal(named(x), listed(x))
    mixed = MultiHeadAttention(24, 6, alignment=MIXED)
    assert mixed(x, attend_within(AttentionScope(causal=True))).shape == x.shape
    with pytest.raises(ValueError, match="got 2 functions for 6 heads"):
        MultiHeadAttention(24, 6, alignment=["dot", "dot"])


@pytest.mark.parametrize("feature_map", ["favor", "elu"])
@pytest.mark.parametrize("causal", [False, True])
def test_kernel_with_normalize_takes_linear_time(
    feature_map: str, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same context as the scores' own, and no scores are built; a mask that differs between queries needs them."""
    heads = HeadGroups(2, 4, "kernel", "normalize", AttentionOptions(feature_map=feature_map)).double()
    query, keys, values = (torch.randn(B, 2, S, 4, dtype=torch.float64) for _ in range(3))
    mask = torch.rand(B, 1, 1, S) > 0.4
    mask[..., 0] = True
    scope = AttentionScope(mask, causal)
    plain = heads.weights(query, heads.prepare(keys), scope) @ values
    rows = torch.randn(B, 1, S, S) > 0
    by_rows = heads.weights(query, heads.prepare(keys), AttentionScope(rows)) @ values
    torch.testing.assert_close(heads.context(query, keys, values, AttentionScope(rows)), by_rows, rtol=0, atol=1e-12)
    for builder in ("score", "relative"):
        monkeypatch.setattr(Kernel, builder, lambda *_: pytest.fail("scores were built"))
    torch.testing.assert_close(heads.context(query, keys, values, scope), plain, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in ALIGNMENTS if name != "kernel"])  # its scores are weights already
def test_attention_begins_undecided_but_for_the_plain_dot_product(name: AlignmentName) -> None:
    """Where a softmax picks one of many keys from the first step on, little gradient comes through it."""
    torch.manual_seed(1)
    query, keys = (torch.rand(1, 2, 16, 512).mul(2).sub(1) * 0.7 for _ in range(2))  # as spread as a GRU's states
    align = make_alignment(name, 512, 512, n_heads=2)
    with torch.no_grad():
        weights = softmax(align(query, keys), query, None)
    bits = float(-(weights * weights.clamp(min=1e-30).log2()).sum(-1).mean())
    assert bits < 2 if name == "dot" else bits > 3.1  # of 4
