"""Pairs whose scores may all vanish beside the smallest number there is: weights, slopes and steps of decoding.

The reference is computed with logarithms alone, in float64: weights s / Σ s are the softmax of ln s.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from walks import STEPS, K, V, Walk

from attnkit.models.attention.alignment import make_alignment
from attnkit.models.attention.attend import AttentionFunction, AttentionScope, attend
from attnkit.models.attention.config import AttentionOptions
from attnkit.models.attention.distribution import normalize, softmax
from attnkit.models.attention.multihead import HeadGroups, attend_within
from attnkit.models.config import TransformerConfig
from attnkit.models.transformer import Transformer

B, H, T, S, D = 2, 2, 4, 7, 64
OPTIONS = {
    "favor": AttentionOptions(),
    "elu": AttentionOptions(feature_map="elu"),
    "gaussian": AttentionOptions(similarity="gaussian", strength=3.0),
}
ALIGNMENT = {"favor": "kernel", "elu": "kernel", "gaussian": "similarity"}


def make(kind: str) -> Any:
    return make_alignment(ALIGNMENT[kind], D, D, OPTIONS[kind], H)  # type: ignore[arg-type]


def parts(scale: float) -> list[Tensor]:
    """Return query, keys and values, which need gradients."""
    torch.manual_seed(int(scale))
    query, keys = (scale * torch.randn(B, H, n, D) for n in (T, S))
    return [part.requires_grad_() for part in (query, keys, torch.randn(B, H, S, 3))]


def padding() -> Tensor:
    mask = torch.ones(B, 1, 1, S, dtype=torch.bool)
    mask[0, ..., 5:] = False
    return mask


def log_scores(kind: str, align: Any, query: Tensor, keys: Tensor) -> Tensor:
    """Return ln a(k, q), (B, H, T, S)."""
    if kind == "gaussian":
        return -(query.unsqueeze(-2) - keys.unsqueeze(-3)).square().sum(-1) / (2 * D**0.5)
    if kind == "elu":
        logs = [torch.where(x > 0, x.clamp(min=0) + 1, x.clamp(max=0).exp()).log() for x in (query, keys)]
    else:
        directions = align.feature_map.directions.double()
        halves = [x / D**0.25 for x in (query, keys)]
        logs = [x @ directions.t() - x.square().sum(-1, keepdim=True) / 2 for x in halves]
    return torch.logsumexp(logs[0].unsqueeze(-2) + logs[1].unsqueeze(-3), -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scale", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("kind", OPTIONS)
def test_weights_and_slopes_are_those_of_logarithms(kind: str, scale: int, dtype: torch.dtype) -> None:
    """At 4 the largest score of some rows was the smallest number there is, and beyond it 0."""
    align, given, mask = make(kind), parts(scale), padding()
    rounded = [part.detach().to(dtype).requires_grad_() for part in given]
    exact = [part.detach().double().requires_grad_() for part in rounded]
    expected = log_scores(kind, align, *exact[:2]).masked_fill(~mask, -torch.inf).softmax(-1)
    wanted = torch.autograd.grad((expected @ exact[2]).sin().sum(), exact)
    context, weights = attend(*rounded, align.to(dtype), normalize, mask)
    unseen = AttentionFunction(align, normalize).context(*rounded, AttentionScope(mask))
    near = 2e-4 if dtype == torch.float32 else 0.02
    # Directions in bfloat16 are another function; at 6 the floor of the features decides where two share no direction.
    exactly = kind != "favor" or (dtype == torch.float32 and scale < 6)
    if exactly:
        torch.testing.assert_close(weights.double(), expected, rtol=0, atol=near)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=dtype), rtol=0, atol=near)
    for found in (context, unseen):
        slopes = torch.autograd.grad(found.sin().sum(), rounded, retain_graph=True)
        assert all(bool(slope.isfinite().all()) for slope in slopes)
        if exactly and dtype == torch.float32:
            torch.testing.assert_close(found.double(), expected @ exact[2], rtol=0, atol=near)
            for a, b in zip(slopes, wanted, strict=True):
                torch.testing.assert_close(a.double(), b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("kind", "scale"), [("favor", 5), ("favor", 40), ("elu", 5), ("elu", 40)])
def test_a_kernels_built_weights_are_those_of_linear_time(kind: str, scale: int) -> None:
    """With padding, causally, and where dropout of the weights is asked for but drops next to none."""
    align = make(kind)
    query, keys, values = (part.detach() for part in parts(scale))
    context, weights = attend(query, keys, values, align, normalize, padding())
    unseen = AttentionFunction(align, normalize).context(query, keys, values, AttentionScope(padding()))
    torch.testing.assert_close(context, unseen, rtol=0, atol=1e-4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T), rtol=0, atol=1e-5)
    heads = HeadGroups(H, D, "kernel", "normalize", OPTIONS[kind])
    scope, seen = AttentionScope(padding(), causal=True), list[Tensor]()
    plain = attend_within(scope, 0.0, seen)(heads, keys, keys, values)
    torch.testing.assert_close(heads.context(keys, keys, values, scope), plain, rtol=0, atol=1e-4)
    torch.testing.assert_close(heads.context(keys, keys, values, scope, 1e-9), plain, rtol=0, atol=1e-4)
    assert bool((seen[0].triu(1) == 0).all())


@pytest.mark.parametrize("kind", OPTIONS)
def test_hidden_keys_do_not_set_the_scale(kind: str) -> None:
    """A hidden key that equals the query, where all that is seen lies far away; and no key at all."""
    align = make(kind)
    query, keys, values = parts(6)
    with torch.no_grad():
        query[:] = query[:, :, :1] * 0.01
        keys[:, :, 0] = query[:, :, 0]
    mask = torch.ones(S, dtype=torch.bool)
    mask[0] = False
    context, weights = attend(query, keys, values, align, normalize, mask)
    alone, _ = attend(query, keys[:, :, 1:], values[:, :, 1:], align, normalize)
    torch.testing.assert_close(context, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T), rtol=0, atol=1e-5)
    for slope in torch.autograd.grad(context.sum(), [query, keys, values]):
        assert bool(slope.isfinite().all())
    empty, none = attend(query, keys[:, :, :0], values[:, :, :0], align, normalize)
    assert none.shape == (B, H, T, 0) and bool((empty == 0).all())


def test_other_distributions_get_the_scores_themselves() -> None:
    """Which for scores of moderate size are the product of features, and in float64 the exponentials of logarithms."""
    for kind in OPTIONS:
        align = make(kind).double()
        query, keys, values = (part.detach().double() for part in parts(1))
        scores = log_scores(kind, align, query, keys).exp()
        scores = scores / {"favor": 128, "elu": 1, "gaussian": 1 / 3}[kind]
        _, weights = attend(query, keys, values, align, softmax)
        torch.testing.assert_close(weights, scores.softmax(-1), rtol=0, atol=1e-9)


@pytest.mark.parametrize("fields", [{}, {"positions": "rotary"}, {"attention_options": {"feature_map": "elu"}}])
@pytest.mark.parametrize("factor", [5.0, 40.0])
@torch.inference_mode()
def test_a_decoder_steps_as_it_was_trained(fields: dict[str, Any], factor: float) -> None:
    """In float32, with projections as much larger; what it shows of its weights sums to one."""
    torch.manual_seed(1)
    sizes = {"d_model": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "d_ff": 24, "dropout": 0.0}
    functions = {"alignment": "kernel", "distribution": "normalize"}
    model = Transformer(TransformerConfig.model_validate({**sizes, **functions, **fields}), V, V).eval()
    for name, weight in model.named_parameters():
        if "projection.weight" in name or "memory.weight" in name:
            weight *= factor
    walk = Walk(model)
    for _ in range(STEPS):
        walk.step()
        torch.testing.assert_close(walk.hidden, walk.full(), rtol=0, atol=5e-3)
        walk.reorder_beams(K)
    for weights in model.attention_weights(walk.src, walk.mask, walk.words[:, 0]).values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), rtol=0, atol=1e-4)


def test_small_distances_of_long_vectors_are_kept() -> None:
    """Vectors of mean 100 that differ by hundredths, against differences number by number in float64."""
    torch.manual_seed(0)
    query, keys = (100 + 0.01 * torch.randn(1, 1, n, 8) for n in (T, S))
    options = AttentionOptions(similarity="euclidean")
    apart = (query.double().unsqueeze(-2) - keys.double().unsqueeze(-3)).square().sum(-1).sqrt()
    found = make_alignment("similarity", 8, 8, options)(query, keys)
    torch.testing.assert_close(found.double(), -apart, rtol=1e-5, atol=0)
    far = make_alignment("similarity", 8, 8, OPTIONS["gaussian"])(1000 * query, 1000 * keys)
    expected = 3 * (-(1000 * apart).square() / (2 * 8**0.5)).exp()
    torch.testing.assert_close(far.double(), expected, rtol=0.02, atol=1e-30)


def test_a_key_that_equals_its_query_has_distance_zero_and_no_slope() -> None:
    query = torch.randn(1, 1, 1, 5, requires_grad=True)
    keys = query.detach().clone().requires_grad_()
    score = make_alignment("similarity", 5, 5, AttentionOptions(similarity="euclidean"))(query, keys)
    assert float(score.detach()) == 0.0
    score.sum().backward()
    assert query.grad is not None and not query.grad.any() and keys.grad is not None and not keys.grad.any()
