"""Keyed shuffles: bijections, fair, and independent of each other."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnkit.data.permutation import FeistelPermutation, parts, shuffled, span, subset

EDGES = np.array([0, 1, 2, 2**16 - 1, 2**31, 2**32 - 1], np.uint32)


def chi_square(counts: list[int]) -> float:
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 for count in counts) / expected


@given(st.integers(), st.integers(0), st.lists(st.integers(0, 2**32 - 1), max_size=50))
def test_inverse_undoes(seed: int, epoch: int, numbers: list[int]) -> None:
    scramble = FeistelPermutation("order", seed, epoch)
    given_numbers = np.array([*numbers, *EDGES.tolist()], np.uint32)
    before = given_numbers.copy()
    assert scramble.invert(scramble.apply(given_numbers)).tolist() == before.tolist()
    assert given_numbers.tolist() == before.tolist()


def test_every_order_is_equally_likely() -> None:
    """All 24 orders of four numbers over 4,800 keys: chi-square with 23 degrees of freedom stays below its 99.9 %."""
    seen = Counter(tuple(shuffled(4, FeistelPermutation("order", 1, epoch)).tolist()) for epoch in range(4800))
    assert len(seen) == 24
    assert chi_square(list(seen.values())) < 49.7


def test_places_and_neighbours_are_independent_of_the_index() -> None:
    order = shuffled(200_000, FeistelPermutation("order", 5, 7)).astype(np.float64)
    assert sorted(order) == list(range(200_000))
    other = shuffled(200_000, FeistelPermutation("order", 5, 8)).astype(np.float64)
    # Of independent orders these correlations are below 4 / sqrt(n) = .009.
    for a, b in ((order, np.arange(200_000)), (order[1:], order[:-1]), (order, other)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.009


def test_key_parts_do_not_run_together() -> None:
    assert FeistelPermutation("a", 1, 23).apply(EDGES).tolist() != FeistelPermutation("a", 12, 3).apply(EDGES).tolist()


@pytest.mark.parametrize(("n", "size"), [(10, 0), (10, 3), (10, 10), (1, 1), (300_000, 150_001)])
def test_subset_has_its_size_and_rises(n: int, size: int) -> None:
    chosen = subset(n, size, FeistelPermutation("draw", 3))
    assert len(chosen) == size
    assert np.all(np.diff(chosen.astype(np.int64)) > 0)
    assert not size or chosen[-1] < n


def test_subset_is_fair() -> None:
    seen = Counter(tuple(subset(5, 2, FeistelPermutation("draw", key)).tolist()) for key in range(2000))
    assert len(seen) == 10
    assert chi_square(list(seen.values())) < 27.9  # 9 degrees of freedom, 99.9 %


def test_parts_cover_everything_once() -> None:
    covered = [number for part in parts(300_000) for number in span(part).tolist()]
    assert covered == list(range(300_000))
