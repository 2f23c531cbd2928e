"""Every pair of alignment and distribution function that has a meaning, against the formulas number by number."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from formulas import Formula, cover, dot, matrix, times, vector, weigh
from torch import Tensor, nn

from attnkit.models.attention.alignment import ALIGNMENTS, make_alignment
from attnkit.models.attention.attend import AttentionFunction, AttentionScope, attend
from attnkit.models.attention.config import (
    ALIGNMENT_NAMES,
    DISTRIBUTION_NAMES,
    NOT_NEGATIVE,
    SAME_WIDTH,
    AttentionOptions,
    incompatibility,
)
from attnkit.models.attention.distribution import DISTRIBUTIONS, make_distribution

B, H, T, S, D = 2, 2, 3, 6, 4
SUM_TO_ONE = {"softmax", "normalize", "hard", "sparsemax", "entmax15"}
OTHERS: dict[tuple[str, str], dict[str, Any]] = {
    ("similarity", "normalize"): {"similarity": "gaussian"},
    ("activated_general", "normalize"): {"activation": "softplus"},
}
"""What a pair needs to have a meaning."""
ALL = list(itertools.product(ALIGNMENT_NAMES, DISTRIBUTION_NAMES))
PAIRS = [pair for pair in ALL if incompatibility(*pair, AttentionOptions.model_validate(OTHERS.get(pair, {}))) is None]
NORMALIZED = [pair for pair in PAIRS if pair[1] == "normalize"]
COVER = list(dict.fromkeys([*cover(PAIRS), ("scaled_dot", "softmax"), ("kernel", "normalize")]))
"""Each function once, and the pairs that have a faster form."""
SLOPES = list(dict.fromkeys([*COVER, *NORMALIZED]))


class Example:
    """A pair with weights none of which is zero, and something to look at; float64."""

    def __init__(self, name: str, distribution: str, n_heads: int = H, **options: Any) -> None:
        torch.manual_seed(7)
        given = {"d_hidden": 5, "n_features": 8, "window": 2, "max_source": 9, **OTHERS.get((name, distribution), {})}
        self.options = AttentionOptions.model_validate({**given, **options})
        self.name, self.distribution, self.n_heads = name, distribution, n_heads
        d_query = D if name in SAME_WIDTH else D - 1
        self.align = make_alignment(name, d_query, D, self.options, n_heads).double()  # type: ignore[arg-type]
        made = make_distribution(distribution, d_query, self.options, n_heads)  # type: ignore[arg-type]
        self.distribute: Any = made.double() if isinstance(made, nn.Module) else made
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.7)
        self.query = torch.randn(B, n_heads, T, d_query, dtype=torch.float64)
        self.keys = torch.randn(B, n_heads, S, D, dtype=torch.float64)
        self.values = torch.randn(B, n_heads, S, 2, dtype=torch.float64)
        self.mask = torch.rand(B, 1, T, S) > 0.4
        self.mask[0, 0, 0] = True
        self.mask[1, 0, 1] = False

    def parameters(self) -> list[nn.Parameter]:
        own = list(self.distribute.parameters()) if isinstance(self.distribute, nn.Module) else []
        return [*self.align.parameters(), *own]

    def attend(self) -> tuple[Tensor, Tensor]:
        return attend(self.query, self.keys, self.values, self.align, self.distribute, self.mask)

    def margins(self) -> list[float]:
        """Return how far every key that is seen lies from the border of its query's window, by the formula."""
        found = []
        for b, h, t in itertools.product(range(B), range(self.n_heads), range(T)):
            inner = matrix(self.distribute.query, h)
            hidden = [math.tanh(number) for number in times(inner, self.query[b, h, t].tolist())]
            asked = dot(vector(self.distribute.weight, h, self.n_heads), hidden)
            n_seen = int(self.mask[b, 0, t].sum())
            centre = n_seen / (1 + math.exp(-asked))
            found += [abs(abs(s - centre) - self.distribute.window) for s in range(n_seen)]
        return found

    def row(self, b: int, h: int, t: int) -> list[float]:
        """Return the weights of one query, from the formulas."""
        formula = Formula(self.name, self.align, self.options, h, self.n_heads)
        q = self.query[b, h, t].tolist()
        seen = [s for s in range(S) if bool(self.mask[b, 0, t, s])]
        scores = [formula(q, self.keys[b, h, s].tolist(), s) for s in seen]
        weights = dict(zip(seen, weigh(self.distribution, scores, q, self.distribute, h, self.n_heads), strict=True))
        return [weights.get(s, 0.0) for s in range(S)]


def test_the_tables_are_the_names() -> None:
    assert tuple(ALIGNMENTS) == ALIGNMENT_NAMES and len(ALIGNMENT_NAMES) == 12
    assert tuple(DISTRIBUTIONS) == DISTRIBUTION_NAMES and len(DISTRIBUTION_NAMES) == 7


def test_what_has_no_meaning_has_a_reason() -> None:
    """Scores that may be negative cannot be normalised; each pair that is left out really has such scores."""
    assert len(PAIRS) == 75
    for name, distribution in set(ALL) - set(PAIRS):
        example = Example(name, "softmax")
        assert distribution == "normalize"
        assert bool((example.align(example.query, example.keys) < 0).any()), name
    for name, distribution in PAIRS:
        options = Example(name, distribution).options
        assert incompatibility(name, distribution, options) is None
    assert "similarity to gaussian" in str(incompatibility("similarity", "normalize", AttentionOptions()))
    for activation in ("tanh", "relu", "sigmoid", "softplus", "gelu", "silu"):
        reason = incompatibility("activated_general", "normalize", AttentionOptions(activation=activation))
        assert (reason is None) == (activation in NOT_NEGATIVE)


@pytest.mark.parametrize(("name", "distribution"), PAIRS)
def test_pair_equals_the_formulas(name: str, distribution: str) -> None:
    example = Example(name, distribution)
    context, weights = example.attend()
    assert context.shape == (B, H, T, 2) and weights.shape == (B, H, T, S)
    for b, h, t in itertools.product(range(B), range(H), range(T)):
        expected = example.row(b, h, t)
        assert weights[b, h, t].tolist() == pytest.approx(expected, abs=1e-9)
        mean = [sum(expected[s] * float(example.values[b, h, s, j]) for s in range(S)) for j in range(2)]
        assert context[b, h, t].tolist() == pytest.approx(mean, abs=1e-9)
    assert bool((weights[~example.mask.expand_as(weights)] == 0).all())
    sums = weights.sum(-1)
    assert bool((sums[1, :, 1] == 0).all()), "a row that sees nothing"
    full = example.mask.any(-1).expand_as(sums)
    assert torch.allclose(sums[full], torch.ones(1, dtype=torch.float64)) or distribution not in SUM_TO_ONE
    if distribution == "local":
        assert bool((sums < 1).all())


@pytest.mark.parametrize(("name", "distribution"), SLOPES)
def test_pair_has_finite_gradients_and_other_ways_give_the_same(name: str, distribution: str) -> None:
    """Prepared keys, and the fastest form where nobody asks for weights; a row that sees nothing moves nothing."""
    example = Example(name, distribution)
    inputs = [example.query, example.keys, example.values]
    for tensor in inputs:
        tensor.requires_grad_()
    context, weights = example.attend()
    function, scope = AttentionFunction(example.align, example.distribute), AttentionScope(example.mask)
    again = function.weights(example.query, example.align.prepare(example.keys), scope)
    fast = function.context(*inputs, scope)
    torch.testing.assert_close(again, weights, rtol=0, atol=0)
    torch.testing.assert_close(fast, context, rtol=0, atol=1e-12)
    (context.sin().sum() + weights.sin().sum()).backward()
    for tensor in [*inputs, *example.parameters()]:
        assert tensor.grad is None or bool(tensor.grad.isfinite().all())
    assert example.query.grad is None or bool((example.query.grad[1, :, 1] == 0).all())
    assert example.values.grad is not None


def away_from_kinks(example: Example) -> None:
    """Assert that no weight is about to vanish or to appear, and no key about to enter a window."""
    scores = example.align(example.query, example.keys)
    if example.distribution in ("sparsemax", "entmax15"):
        weights = example.distribute(scores, example.query, example.mask).flatten(0, 2)
        power = 1 if example.distribution == "sparsemax" else 2
        z = (scores / power).flatten(0, 2)
        for row, p in zip(z, weights, strict=True):
            inside = p > 0
            if bool(inside.any()):
                threshold = row[inside] - p[inside] ** (1 / power)
                assert float((row - threshold[0]).detach().abs().min()) > 1e-5
    if example.distribution == "local":
        assert min(example.margins()) > 1e-5


@pytest.mark.parametrize(("name", "distribution"), [pair for pair in SLOPES if pair[1] != "hard"])
def test_smooth_pair_has_the_slopes_of_finite_differences(name: str, distribution: str) -> None:
    """Over queries, keys, values and all weights."""
    example = Example(name, distribution)
    away_from_kinks(example)
    inputs = [example.query, example.keys, example.values]
    for tensor in inputs:
        tensor.requires_grad_()

    def run(*_: Tensor) -> tuple[Tensor, Tensor]:
        return example.attend()

    used = [*inputs, *example.parameters()]
    assert torch.autograd.gradcheck(run, used, eps=1e-6, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("similarity", {"similarity": kind}) for kind in ("cosine", "pearson", "euclidean", "gaussian")),
        ("similarity", {"strength": 3.5}),
        *(("kernel", {"feature_map": kind}) for kind in ("favor", "elu")),
        *(("deep", {"deep_layers": n}) for n in (2, 3, 5)),
        *(("activated_general", {"activation": kind}) for kind in ("relu", "sigmoid", "softplus", "gelu", "silu")),
        *(("additive", {"activation": kind}) for kind in ("relu", "gelu")),
        *(
            ("feature", {"first_feature": first, "second_feature": second})
            for first, second in (("position", "identity"), ("square", "square"), ("identity", "square"))
        ),
    ],
)
@pytest.mark.parametrize("n_heads", [1, 3])
def test_options_equal_the_formulas(name: str, options: dict[str, Any], n_heads: int) -> None:
    example = Example(name, "softmax", n_heads, **options)
    _, weights = example.attend()
    for b, h, t in itertools.product(range(B), range(n_heads), range(T)):
        assert weights[b, h, t].tolist() == pytest.approx(example.row(b, h, t), abs=1e-9)


@pytest.mark.parametrize("name", ALIGNMENT_NAMES)
def test_one_head_is_what_several_are(name: str) -> None:
    """The plain operators of one head give what the heads' give, by the formula."""
    example = Example(name, "local", n_heads=1)
    _, weights = example.attend()
    for b, t in itertools.product(range(B), range(T)):
        assert weights[b, 0, t].tolist() == pytest.approx(example.row(b, 0, t), abs=1e-9)


@pytest.mark.parametrize("name", sorted(SAME_WIDTH))
def test_products_need_equal_widths(name: str) -> None:
    with pytest.raises(ValueError, match="equal width, not 3 and 4"):
        make_alignment(name, 3, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ALIGNMENT_NAMES)
@pytest.mark.parametrize("n_heads", [1, 3])
def test_a_key_at_a_position_is_prepared_as_in_its_row(name: str, n_heads: int) -> None:
    """What a decoder prepares step by step is what the full pass prepares at once."""
    example = Example(name, "softmax", n_heads)
    whole = example.align.prepare(example.keys)
    for s in range(S):
        alone = example.align.prepare(example.keys[:, :, s : s + 1], at=s)
        torch.testing.assert_close(alone, whole[:, :, s : s + 1], rtol=0, atol=1e-12)


def test_location_ends_where_it_was_told() -> None:
    example = Example("location", "softmax", max_source=S)
    example.attend()
    with pytest.raises(ValueError, match=f"length {S + 1} exceeds the {S} positions"):
        example.align.prepare(torch.cat([example.keys, example.keys[:, :, :1]], dim=2))
    with pytest.raises(ValueError, match=f"length {S + 1} exceeds"):
        example.align.prepare(example.keys[:, :, :1], at=S)


@pytest.mark.parametrize(("name", "distribution"), SLOPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_lower_precision_is_near(name: str, distribution: str, dtype: torch.dtype) -> None:
    """And keeps its type, its zeros and finite gradients."""
    example = Example(name, distribution)
    _, exact = example.attend()
    example.align.to(dtype)
    if isinstance(example.distribute, nn.Module):
        example.distribute.to(dtype)
    inputs = [tensor.to(dtype).requires_grad_() for tensor in (example.query, example.keys, example.values)]
    context, weights = attend(*inputs, example.align, example.distribute, example.mask)
    assert context.dtype == weights.dtype == dtype
    assert bool((weights[~example.mask.expand_as(weights)] == 0).all())
    context.sum().backward()
    assert all(tensor.grad is None or bool(tensor.grad.isfinite().all()) for tensor in inputs)
    if distribution != "hard":  # where rounding may choose another key
        tolerance = 1e-4 if dtype == torch.float32 else 0.15
        torch.testing.assert_close(weights.double(), exact, rtol=0, atol=tolerance)
