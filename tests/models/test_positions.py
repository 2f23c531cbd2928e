"""Positions against their formulas."""

from __future__ import annotations

import math

import pytest
import torch

from attnkit.models.positions import AlibiBias, PositionEmbedding, RelativeBias, Rotation, alibi_slopes, sinusoids


def like(width: int) -> torch.Tensor:
    return torch.empty(1, width, dtype=torch.float64)


def test_sinusoids_are_the_papers() -> None:
    table = sinusoids(0, 70, like(8))
    for at in (0, 1, 5, 69):
        for i in range(4):
            angle = at / 10000 ** (2 * i / 8)
            assert float(table[at, 2 * i]) == pytest.approx(math.sin(angle), abs=1e-12)
            assert float(table[at, 2 * i + 1]) == pytest.approx(math.cos(angle), abs=1e-12)
    assert torch.equal(sinusoids(3, 7, like(8)), table[3:7])


@pytest.mark.parametrize("shift", [1, 7])
def test_a_shift_is_one_linear_map_for_every_position(shift: int) -> None:
    table = sinusoids(0, 100, like(8))
    before, after = table[: 100 - shift], table[shift:]
    assert int(torch.linalg.matrix_rank(before)) == 8
    shared = torch.linalg.lstsq(before[:20], after[:20]).solution  # fitted on the first twenty alone
    torch.testing.assert_close(before @ shared, after, rtol=0, atol=1e-8)


def test_learned_positions_end() -> None:
    positions, x = PositionEmbedding("learned", 5, 4), torch.zeros(4, 4)
    assert positions.table is not None and torch.equal(positions(x, 1, 5), positions.table[1:5])
    with pytest.raises(ValueError, match="length 6 exceeds the 5 learned positions"):
        positions(x[:1], 5, 6)
    later = PositionEmbedding("learned", 5, 4, offset=2)
    assert later.table is not None and torch.equal(later(x, 1, 5), later.table[3:7]) and len(later.table) == 7
    with pytest.raises(ValueError, match="length 6 exceeds the 5 learned positions"):
        later(x[:1], 5, 6)


def test_rotation_makes_products_depend_on_distance_alone() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(2, 8, dtype=torch.float64)

    def product(i: int, j: int) -> float:
        return float((Rotation(i, i + 1, like(8))(query[None]) * Rotation(j, j + 1, like(8))(key[None])).sum())

    assert product(9, 4) == pytest.approx(product(25, 20), abs=1e-12)
    assert product(9, 4) != pytest.approx(product(4, 9), abs=1e-3)
    assert product(6, 6) == pytest.approx(float(query @ key), abs=1e-12)


def test_rotation_turns_pairs_as_complex_numbers() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64)
    turned = Rotation(2, 5, like(4))(x)
    for row, at in enumerate((2, 3, 4)):
        for i in range(2):
            angle = at / 10000 ** (2 * i / 4)
            number = complex(x[row, i], x[row, i + 2]) * complex(math.cos(angle), math.sin(angle))
            assert complex(turned[row, i], turned[row, i + 2]) == pytest.approx(number, abs=1e-12)


def test_alibi_penalises_distance_by_the_papers_slopes() -> None:
    assert alibi_slopes(8) == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(12)[:8] == alibi_slopes(8) and alibi_slopes(12)[8:] == alibi_slopes(16)[0:8:2]
    bias = AlibiBias(2)(torch.arange(5)[None, :] - torch.arange(5)[:, None])
    for h, slope in enumerate((1 / 16, 1 / 256)):
        assert bias[h].tolist() == [[-slope * abs(i - j) for j in range(5)] for i in range(5)]


def t5_bucket(distance: int, both_ways: bool, n_buckets: int, max_distance: int) -> int:
    """Return T5's bucket of one distance key - query, from its description."""
    first = 0
    if both_ways:
        n_buckets //= 2
        first = n_buckets if distance > 0 else 0
        away = abs(distance)
    else:
        away = max(0, -distance)
    exact = n_buckets // 2
    if away < exact:
        return first + away
    step = math.log(away / exact) / math.log(max_distance / exact) * (n_buckets - exact)
    return first + min(n_buckets - 1, exact + int(step + 1e-9))


@pytest.mark.parametrize("both_ways", [False, True])
def test_relative_buckets_are_t5s(both_ways: bool) -> None:
    bias = RelativeBias(2, both_ways)
    distance = torch.arange(-300, 301)
    expected = [t5_bucket(int(n), both_ways, 32, 128) for n in distance]
    assert bias.buckets(distance).tolist() == expected
    assert sorted(set(expected)) == sorted(set(range(32)) - ({16} if both_ways else set()))
    assert torch.equal(bias(distance[None])[1, 0], bias.table[expected, 1])


def test_tables_made_while_translating_serve_training() -> None:
    with torch.inference_mode():
        sinusoids(0, 3, torch.empty(1, 6))
        Rotation(0, 3, torch.empty(1, 6))
    x = torch.randn(3, 6, requires_grad=True)
    (Rotation(0, 3, x)(x) * sinusoids(0, 3, x)).sum().backward()
    assert x.grad is not None
