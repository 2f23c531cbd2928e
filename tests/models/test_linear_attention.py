"""Kernel attention in linear time: against the quadratic form, loops over elements, and softmax attention."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from attnkit.models.attention import linear_attention as linear
from attnkit.models.attention.config import FeatureMapName
from attnkit.models.attention.linear_attention import (
    FEATURE_MAPS,
    FavorFeatures,
    FeatureMap,
    linear_attention,
    orthogonal_directions,
)

B, H, S, WIDTH = 2, 2, 13, 5
MAPS = list(FEATURE_MAPS)


def make(name: str, width: int = WIDTH, n_features: int = 12) -> nn.Module:
    return FEATURE_MAPS[name](width, n_features, 3).double()


def phi(feature_map: Any, x: Tensor) -> Tensor:
    """Return φ(x), which may underflow."""
    features, scale = feature_map.scaled(x)
    return (features * scale.exp()).to(x.dtype)


def parts(length: int = S, width: int = WIDTH) -> list[Tensor]:
    """Return query, keys and values, which need gradients."""
    torch.manual_seed(0)
    return [torch.randn(B, H, length, n, dtype=torch.float64).requires_grad_() for n in (width, width, 3)]


def padding(length: int = S) -> Tensor:
    """Return a key mask: the first row lacks its last third, the second its first two keys."""
    mask = torch.ones(B, 1, 1, length, dtype=torch.bool)
    mask[0, ..., length - length // 3 :] = False
    mask[1, ..., :2] = False
    return mask


def quadratic(query: Tensor, keys: Tensor, values: Tensor, scores: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """Return kernel x normalize as it is written, from scores that are built."""
    allowed = torch.ones(query.shape[-2], keys.shape[-2], dtype=torch.bool)
    allowed = allowed.tril() if causal else allowed
    scores = scores * (allowed if mask is None else allowed & mask)
    total = scores.sum(-1, keepdim=True)
    return (scores / torch.where(total == 0, 1.0, total)) @ values


def plain_features(feature_map: nn.Module, x: list[float]) -> list[float]:
    """Return φ(x) number by number, from its formula."""
    if not isinstance(feature_map, FavorFeatures):
        return [number + 1 if number > 0 else math.exp(number) for number in x]
    x = [number / len(x) ** 0.25 for number in x]
    half_square = sum(number**2 for number in x) / 2
    m = len(feature_map.directions)
    inner = [sum(a * b for a, b in zip(row, x, strict=True)) for row in feature_map.directions.tolist()]
    return [math.exp(value - half_square) / math.sqrt(m) for value in inner]


def test_the_table_has_the_names_that_can_be_chosen() -> None:
    assert set(FEATURE_MAPS) == set(get_args(FeatureMapName))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_context_equals_a_loop_over_elements(name: str, causal: bool) -> None:
    feature_map = make(name)
    query, keys, values = (part.detach() for part in parts())
    mask = padding()
    context = linear_attention(query, keys, values, feature_map, mask, causal)
    for b in range(B):
        for h in range(H):
            seen = [plain_features(feature_map, key) for key in keys[b, h].tolist()]
            for t in range(S):
                asked = plain_features(feature_map, query[b, h, t].tolist())
                open_to = [s for s in range(S) if bool(mask[b, 0, 0, s]) and (s <= t or not causal)]
                scores = {s: sum(x * y for x, y in zip(asked, seen[s], strict=True)) for s in open_to}
                total = sum(scores.values()) or 1.0
                expected = [sum(scores[s] / total * float(values[b, h, s, j]) for s in open_to) for j in range(3)]
                assert context[b, h, t].tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("chunk", [4, 128])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_linear_and_quadratic_form_are_equal(
    name: str, causal: bool, padded: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "CHUNK", chunk)
    feature_map, mask = make(name), padding() if padded else None
    query, keys, values = given = parts()
    scores = phi(feature_map, query) @ phi(feature_map, keys).transpose(-1, -2)
    expected = quadratic(query, keys, values, scores, mask, causal)
    found = linear_attention(query, keys, values, feature_map, mask, causal)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    wanted = torch.autograd.grad(expected.sin().sum(), given)
    for a, b in zip(torch.autograd.grad(found.sin().sum(), given), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_gradients_of_features_are_those_of_the_formula() -> None:
    feature_map = make("favor")
    x = parts()[0]
    assert torch.autograd.gradcheck(partial(phi, feature_map), (x[:1, :1, :3],))


@pytest.mark.parametrize("causal", [False, True])
def test_long_vectors_whose_features_underflow_have_their_weights_still(causal: bool) -> None:
    torch.manual_seed(1)
    feature_map = FavorFeatures(16, 64)
    away = 40 * F.normalize(torch.randn(16), dim=0)  # query and keys lie together, far from zero
    query, keys = (torch.randn(1, 1, 9, 16) + away for _ in range(2))
    values = torch.randn(1, 1, 9, 3)
    assert float(phi(feature_map, keys).max()) == 0.0
    log_scores = log_products(feature_map, query.double(), keys.double())
    future = torch.ones(9, 9).triu(1).bool() if causal else torch.zeros(9, 9).bool()
    expected = log_scores.masked_fill(future, -math.inf).softmax(-1) @ values.double()
    found = linear_attention(query, keys, values, feature_map, None, causal)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-3)


def log_products(feature_map: FavorFeatures, query: Tensor, keys: Tensor) -> Tensor:
    """Return ln φ(q)·φ(k), computed with logarithms alone."""
    logs = []
    for x in (query, keys):
        x = x / x.shape[-1] ** 0.25
        logs.append(x @ feature_map.directions.double().t() - x.square().sum(-1, keepdim=True) / 2)
    return torch.logsumexp(logs[0].unsqueeze(-2) + logs[1].unsqueeze(-3), -1)


def test_vectors_without_a_common_feature_give_finite_numbers() -> None:
    torch.manual_seed(1)
    query, keys, values = (100 * torch.randn(1, 1, 20, 8) for _ in range(3))
    for part in (query, keys, values):
        part.requires_grad_()
    for causal in (False, True):
        found = linear_attention(query, keys, values, FavorFeatures(8, 16), None, causal)
        assert bool(found.isfinite().all()) and bool((found != 0).all())
        gradients = torch.autograd.grad(found.sum(), (query, keys, values))
        assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("name", MAPS)
def test_no_later_key_changes_an_earlier_context(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "CHUNK", 4)
    feature_map = make(name).float()
    query, keys, values = (part.detach().float() for part in parts())
    before = linear_attention(query, keys, values, feature_map, causal=True)
    for t in range(S):
        later_keys, later_values = keys.clone(), values.clone()
        later_keys[..., t + 1 :, :] *= 20  # a scale of all keys together would move
        later_values[..., t + 1 :, :] += 5
        after = linear_attention(query, later_keys, later_values, feature_map, causal=True)
        assert torch.equal(after[..., : t + 1, :], before[..., : t + 1, :])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_neither_padding_nor_batch_mates_change_a_context(name: str, causal: bool) -> None:
    feature_map = make(name).float()
    query, keys, values = (part.detach().float() for part in parts())
    mask = padding()
    before = linear_attention(query, keys, values, feature_map, mask, causal)
    other_keys, other_values = keys.clone(), values.clone()
    other_keys[0, :, S - S // 3 :] *= 50
    other_values[0, :, S - S // 3 :] = 1e6
    other_keys[1] *= 50
    after = linear_attention(query, other_keys, other_values, feature_map, mask, causal)
    assert torch.equal(after[0], before[0]) and not torch.equal(after[1], before[1])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_a_row_without_keys_gives_zeros(name: str, causal: bool) -> None:
    given = parts()
    mask = padding()
    mask[0] = False
    found = linear_attention(*given, make(name), mask, causal)
    assert bool((found[0] == 0).all()) and bool((found[1, :, 2:] != 0).all())
    assert bool((found[1, :, :2] == 0).all()) == causal  # its first two keys are masked
    for gradient in torch.autograd.grad(found.sum(), given):
        assert bool(gradient.isfinite().all()) and bool((gradient[0] == 0).all())
    empty = linear_attention(given[0], given[1][:, :, :0], given[2][:, :, :0], make(name))
    assert empty.shape == (B, H, S, 3) and bool((empty == 0).all())


def favor_error(n_features: int) -> float:
    """Return the mean distance from softmax attention over eight draws.

    The vectors are short: the features' variance grows with e^|q + k|² (Choromanski 2021, lemma 2), and for long ones
    the error falls more slowly than the square root of their number.
    """
    torch.manual_seed(2)
    query, keys, values = (torch.randn(1, 4, 32, 8, dtype=torch.float64) / 2 for _ in range(3))
    exact = F.scaled_dot_product_attention(query, keys, values)
    errors = []
    for seed in range(8):
        found = linear_attention(query, keys, values, FavorFeatures(8, n_features, seed).double())
        errors.append(float((found - exact).norm() / exact.norm()))
    return sum(errors) / len(errors)


def test_favor_nears_softmax_attention_as_features_grow() -> None:
    errors = [favor_error(n) for n in (8, 32, 128, 512, 2048)]
    assert all(more < 0.75 * fewer for fewer, more in itertools.pairwise(errors)), errors
    assert errors[-1] < 0.1


def test_favor_products_have_the_softmax_kernel_as_their_mean() -> None:
    torch.manual_seed(3)
    query, key = torch.randn(2, 6, dtype=torch.float64)
    found = []
    for seed in range(400):
        feature_map = FavorFeatures(6, 30, seed).double()
        found.append(float(phi(feature_map, query) @ phi(feature_map, key)))
    drawn = torch.tensor(found)
    error = float(drawn.std()) / math.sqrt(len(found))
    assert float(drawn.mean()) == pytest.approx(math.exp(float(query @ key) / math.sqrt(6)), abs=4 * error)
    assert error < 0.05 * float(drawn.mean())


@pytest.mark.parametrize("width", [16, 64])
def test_mirrored_directions_keep_the_mean_and_lower_the_variance(width: int) -> None:
    """Choromanski 2021, lemma 2: at equal numbers of features, for vectors of norms 0.5 to 2."""
    torch.manual_seed(4)
    unit = F.normalize(torch.randn(2, 4, width, dtype=torch.float64), dim=-1)
    query, keys = unit * torch.tensor([0.5, 1.0, 1.5, 2.0]).double()[:, None]
    exact = ((query * keys).sum(-1) / math.sqrt(width)).exp()
    drawn = {}
    for mirrored in (False, True):
        maps = [FavorFeatures(width, 20, seed, mirrored).double() for seed in range(600)]
        drawn[mirrored] = torch.stack([(phi(one, query) * phi(one, keys)).sum(-1) for one in maps])
        error = drawn[mirrored].std(0) / math.sqrt(len(maps))
        assert bool(((drawn[mirrored].mean(0) - exact).abs() < 4 * error).all())
    ratio = drawn[True].var(0) / drawn[False].var(0)
    assert bool((ratio < 0.97).all() and (ratio[:2] < 0.5).all()), ratio


@pytest.mark.parametrize("n_features", [7, 20])
def test_mirrored_directions_are_pairs(n_features: int) -> None:
    directions = FavorFeatures(5, n_features, 1, mirrored=True).directions
    half = -(-n_features // 2)
    assert directions.shape == (n_features, 5) and torch.equal(directions[half:], -directions[: n_features - half])


def test_directions_are_orthogonal_in_blocks_and_as_long_as_gaussian_ones() -> None:
    directions = orthogonal_directions(20, 8, seed=0)
    for block in (directions[:8], directions[8:16], directions[16:]):
        product = block @ block.t()
        torch.testing.assert_close(product, product.diagonal().diag(), rtol=0, atol=1e-12)
    many = orthogonal_directions(8 * 4000, 8, seed=1)
    assert float(many.square().sum(-1).mean()) == pytest.approx(8, rel=0.02)  # of χ² with 8 degrees of freedom
    assert float(many.square().sum(-1).var()) == pytest.approx(16, rel=0.05)
    torch.testing.assert_close(many.t() @ many / len(many), torch.eye(8).double(), rtol=0, atol=0.05)


def test_directions_follow_from_their_seed_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = FavorFeatures(4, 6, seed=1)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(3)
    again = FavorFeatures(4, 6, seed=2)
    assert not torch.equal(first.directions, again.directions)
    assert torch.equal(first.directions, FavorFeatures(4, 6, seed=1).directions)
    assert "directions" in first.state_dict() and not list(first.parameters())
    with torch.device("meta"):
        assert FavorFeatures(4, 6).directions.is_meta


class Elements(TorchDispatchMode):
    """Counts the numbers that operators write, and keeps the largest output."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.total += tensor.numel()
                self.largest = max(self.largest, tensor.numel())
        return out


def counted(name: str, causal: bool, length: int) -> tuple[int, int, int]:
    """Return elements written, the largest output, and floating-point operations, forward and backward."""
    torch.manual_seed(0)
    feature_map: FeatureMap = FEATURE_MAPS[name](8, 16, 0)
    given = [torch.randn(1, 1, length, 8, requires_grad=True) for _ in range(3)]
    with Elements() as elements, FlopCounterMode(display=False) as flops:
        linear_attention(*given, feature_map, None, causal).sum().backward()
    return elements.total, elements.largest, flops.get_total_flops()


@pytest.mark.sample(2)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_operations_grow_linearly_to_16k_tokens(name: str, causal: bool) -> None:
    short, long = counted(name, causal, 4096), counted(name, causal, 16384)
    assert short[2] > 0 and long[2] <= 4.05 * short[2]
    assert long[0] <= 4.05 * short[0]
    assert long[1] <= 32 * 16384  # features, and values with their ones; not 16,384 squared, nor T x m x d_v


def test_half_precision_is_summed_in_float32() -> None:
    query, keys, values = (part.detach().float() for part in parts(300))
    feature_map = FavorFeatures(WIDTH, 12)
    for causal in (False, True):
        found = linear_attention(query.bfloat16(), keys.bfloat16(), values.bfloat16(), feature_map, None, causal)
        exact = linear_attention(query, keys, values, feature_map, None, causal)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), exact, rtol=0, atol=0.05)


def test_what_cannot_be_linear_is_refused() -> None:
    query, keys, values = parts()
    with pytest.raises(ValueError, match="one mask for all queries"):
        linear_attention(query, keys, values, make("elu"), torch.ones(B, 1, S, S, dtype=torch.bool))
    with pytest.raises(ValueError, match="as many keys as queries, not 13 and 4"):
        linear_attention(query[:, :, :4], keys, values, make("elu"), causal=True)
