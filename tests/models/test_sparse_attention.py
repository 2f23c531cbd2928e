"""Sparse patterns: against dense attention under the same mask, and nothing of the size of that mask is built."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from attnkit.models.attention import patterns
from attnkit.models.attention.patterns import (
    PATTERNS,
    BlockDiagonal,
    GlobalWindow,
    Pattern,
    PatternName,
    Strided,
    Window,
    make_pattern,
)
from attnkit.models.attention.sparse import sparse_attention
from attnkit.models.positions import AlibiBias, RelativeBias

B, H = 2, 2
Rule = Callable[[int, int], bool]


def cases(causal: bool) -> list[tuple[Pattern, Rule]]:
    """Return patterns, each with its rule as a sentence would say it, without causality."""
    return [
        (Window(1, causal), lambda i, j: -1 <= i - j <= 1),
        (Window(9, causal), lambda i, j: i - 9 <= j <= i + 9),
        (Strided(1, causal), lambda i, j: True),
        (Strided(5, causal), lambda i, j: abs(i - j) in (0, 1, 2, 3, 4) or i % 5 == j % 5),
        (BlockDiagonal(1, causal), lambda i, j: i == j),
        (
            BlockDiagonal(6, causal),
            lambda i, j: any(6 * n <= i < 6 * n + 6 and 6 * n <= j < 6 * n + 6 for n in range(9)),
        ),
        (GlobalWindow(2, causal), lambda i, j: abs(i - j) <= 2 or 0 in (i, j)),
        (GlobalWindow(3, causal, n_global=4), lambda i, j: abs(i - j) <= 3 or min(i, j) < 4),
    ]


CASES = [(pattern, rule) for causal in (False, True) for pattern, rule in cases(causal)]
ALL = [pattern for pattern, _ in CASES]


@pytest.fixture(params=[(8, 16), (128, 2048)], ids=["small tiles", "tiles"])
def tiles(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "ROWS", request.param[0])
    monkeypatch.setattr(patterns, "COLUMNS", request.param[1])


def parts(n_queries: int, n_keys: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(B, H, n, 4, dtype=torch.float64).requires_grad_() for n in (n_queries, n_keys, n_keys)]


def allowed(pattern: Pattern, n_queries: int, n_keys: int, mask: Tensor | None) -> Tensor:
    dense = torch.tensor(pattern.dense_mask(n_queries, n_keys)).expand(B, H, n_queries, n_keys)
    return dense if mask is None else dense & mask


def plain(given: list[Tensor], visible: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return softmax attention under a mask that is built, zeros where a row sees nothing."""
    query, keys, values = given
    scores = query @ keys.transpose(-1, -2) / math.sqrt(query.shape[-1])
    scores = scores if bias is None else scores + bias
    seeing = visible.any(-1, keepdim=True)
    weights = scores.masked_fill(~visible & seeing, -math.inf).softmax(-1) * seeing
    return weights @ values


def test_the_table_has_the_names_that_can_be_chosen() -> None:
    assert set(PATTERNS) == set(get_args(PatternName))
    made = make_pattern("global", 3, True, 2)
    assert made == GlobalWindow(3, True, 2) and make_pattern("block", 3) == BlockDiagonal(3)


@pytest.mark.parametrize(("pattern", "rule"), CASES, ids=[str(pattern) for pattern in ALL])
def test_patterns_are_what_they_say(pattern: Pattern, rule: Rule) -> None:
    for n_queries, n_keys in ((1, 1), (23, 23), (11, 17), (17, 11)):
        mask = pattern.dense_mask(n_queries, n_keys)
        for i in range(n_queries):
            assert mask[i] == [rule(i, j) and (j <= i or not pattern.causal) for j in range(n_keys)]


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("pattern", ALL, ids=str)
def test_every_pair_counts_in_exactly_one_tile(pattern: Pattern) -> None:
    for n_queries, n_keys in ((1, 1), (23, 23), (41, 41), (11, 17), (17, 11), (150, 150)):
        counts = torch.zeros(n_queries, n_keys, dtype=torch.int64)
        for tile in pattern.tiles(n_queries, n_keys):
            i, j = torch.tensor(tile.queries)[:, None], torch.tensor(tile.keys)[None, :]
            assert len(tile.queries) <= patterns.ROWS and len(tile.keys) <= patterns.COLUMNS
            counts[i, j] += 1 if tile.sees is None else tile.sees(i, j).long()
        assert counts.tolist() == torch.tensor(pattern.dense_mask(n_queries, n_keys)).long().tolist()


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("pattern", ALL, ids=str)
def test_sparse_equals_dense_under_the_same_mask(pattern: Pattern, padded: bool) -> None:
    for n_queries, n_keys in ((1, 1), (7, 7), (37, 37), (11, 19), (19, 11)):
        mask = None
        if padded:
            mask = torch.ones(B, 1, 1, n_keys, dtype=torch.bool)
            mask[0, ..., n_keys // 2 :] = False
            mask[1] = torch.rand(n_keys) > 0.5
        given = parts(n_queries, n_keys)
        expected = plain(given, allowed(pattern, n_queries, n_keys, mask))
        found = sparse_attention(*given, pattern, mask)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        wanted = torch.autograd.grad(expected.sin().sum(), given)
        for a, b in zip(torch.autograd.grad(found.sin().sum(), given), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_rows_that_see_nothing_give_zeros_and_no_gradient() -> None:
    given = parts(9, 9)
    mask = torch.ones(B, 1, 1, 9, dtype=torch.bool)
    mask[0] = False
    mask[1, ..., :4] = False
    found = sparse_attention(*given, Window(1, causal=True), mask)
    assert bool((found[0] == 0).all()) and bool((found[1, :, :4] == 0).all()) and bool((found[1, :, 4:] != 0).all())
    for gradient in torch.autograd.grad(found.sum(), given):
        assert bool(gradient.isfinite().all()) and bool((gradient[0] == 0).all())


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("pattern", [Window(3), Strided(4, causal=True), GlobalWindow(2)], ids=str)
@pytest.mark.parametrize("kind", ["alibi", "relative"])
def test_biases_of_distance_are_added_and_trained(kind: str, pattern: Pattern) -> None:
    torch.manual_seed(1)
    bias: AlibiBias | RelativeBias = AlibiBias(H) if kind == "alibi" else RelativeBias(H, both_ways=True)
    bias.double()
    given = parts(21, 21)
    leaves = [*given, *bias.parameters()]
    apart = torch.arange(21)[None, :] - torch.arange(21)[:, None]
    expected = plain(given, allowed(pattern, 21, 21, None), bias(apart))
    found = sparse_attention(*given, pattern, None, bias)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    wanted = torch.autograd.grad(expected.sin().sum(), leaves)
    for a, b in zip(torch.autograd.grad(found.sin().sum(), leaves), wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert len(leaves) == 3 + (kind == "relative")


def test_large_scores_stay_finite() -> None:
    query, keys, values = (part.detach().float() * 200 for part in parts(40, 40))
    dense = torch.tensor(Strided(6).dense_mask(40, 40))
    found = sparse_attention(query, keys, values, Strided(6))
    expected = F.scaled_dot_product_attention(query, keys, values, attn_mask=dense)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def test_half_precision_is_computed_in_float32() -> None:
    given = [part.detach().bfloat16().requires_grad_() for part in parts(40, 40)]
    found = sparse_attention(*given, Window(4))
    exact = sparse_attention(*(part.detach().float() for part in given), Window(4))
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), exact, rtol=0.01, atol=0.01)
    found.sum().backward()
    assert all(part.grad is not None and part.grad.dtype == torch.bfloat16 for part in given)


class Largest(TorchDispatchMode):
    """Keeps the size of the largest output of any operator."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.numel())
        return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", PATTERNS)
def test_nothing_of_the_size_of_the_matrix_is_built(name: PatternName, causal: bool) -> None:
    n, width = 4096, 4
    torch.manual_seed(0)
    given = [torch.randn(1, 1, n, width, requires_grad=True) for _ in range(3)]
    mask = torch.ones(1, 1, 1, n, dtype=torch.bool)
    pattern = make_pattern(name, 64, causal, 2)
    with Largest() as largest:
        sparse_attention(*given, pattern, mask, AlibiBias(1)).sum().backward()
    assert n * width <= largest.numbers <= patterns.ROWS * patterns.COLUMNS < n * n // 32


@pytest.mark.parametrize(
    "pattern", [Window(64), Window(64, True), BlockDiagonal(64), GlobalWindow(64, n_global=2)], ids=str
)
def test_scores_of_a_local_pattern_grow_linearly(pattern: Pattern) -> None:
    """What the tiles hold is what is computed, as the count of products shows at the shorter length."""
    first, short, long = (
        sum(len(tile.queries) * len(tile.keys) for tile in pattern.tiles(n, n)) for n in (512, 4096, 16384)
    )
    assert 0 < long <= 4.1 * short
    given = [torch.randn(1, 1, 512, 4, requires_grad=True) for _ in range(3)]
    with FlopCounterMode(display=False) as flops:
        sparse_attention(*given, pattern).sum().backward()
    assert flops.get_total_flops() == 2 * 4 * 7 * first  # two products a tile forward, five backward


linux_only = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's VmHWM")
SIXTEEN_K = """
import pathlib, torch
from attnkit.models.attention.patterns import make_pattern
from attnkit.models.attention.sparse import sparse_attention
torch.set_num_threads(1)
parts = [torch.randn(1, {heads}, 16384, 64, requires_grad=True) for _ in range(3)]
mask = torch.ones(1, 1, 1, 16384, dtype=torch.bool)
sparse_attention(*parts, make_pattern({name!r}, 128, {causal}), mask).sum().backward()
assert all(part.grad.isfinite().all() for part in parts)
status = pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1]
print(int(status.split()[0]) * 1024)
"""


def peak(name: str, causal: bool, heads: int) -> int:
    """Return the bytes of the largest resident set of a process that attends over 16,384 tokens and back.

    It is read as VmHWM: ``ru_maxrss`` of a new process begins with what the test's own process holds at the fork.
    """
    code = SIXTEEN_K.format(name=name, causal=causal, heads=heads)
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=200)
    return int(ended.stdout)


@linux_only
@pytest.mark.slow
def test_sixteen_thousand_tokens_take_less_than_a_gigabyte() -> None:
    """One matrix of scores alone would take 1.07 GB."""
    assert peak("window", False, 1) < 1e9


@linux_only
@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", PATTERNS)
def test_eight_heads_of_every_pattern_take_less_than_a_gigabyte(name: str, causal: bool) -> None:
    assert peak(name, causal, 8) < 1e9


def test_misuse_is_refused() -> None:
    given = parts(5, 5)
    with pytest.raises(ValueError, match="one mask for all queries"):
        sparse_attention(*given, Window(1), torch.ones(B, 1, 5, 5, dtype=torch.bool))
    with pytest.raises(ValueError, match="size of at least 1, not 0"):
        Window(0)


def test_a_bias_that_is_not_trained_has_no_gradient() -> None:
    bias = RelativeBias(H, both_ways=True).double()
    nn.Module.requires_grad_(bias, False)
    given = parts(9, 9)
    sparse_attention(*given, Window(2), None, bias).sum().backward()
    assert bias.table.grad is None and given[0].grad is not None
