"""Packing documents into rows: nothing lost, hardly any room left, best fit as a plain loop finds it."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.data.packing import Packing, pack, pack_with_lookahead


def pieces(packing: Packing) -> list[list[tuple[int, int, int]]]:
    """Return each row's pieces: document, offset, length."""
    all_pieces = list(zip(packing.documents.tolist(), packing.offsets.tolist(), packing.lengths.tolist(), strict=True))
    starts = packing.row_starts.tolist()
    return [all_pieces[begin:end] for begin, end in itertools.pairwise(starts)]


def naive_rows(lengths: list[int], room: int, more: int) -> int:
    """Return how many rows best-fit decreasing needs, piece by piece."""
    sizes = [most for length in lengths for most in [room] * (length // (room - more))]
    sizes += [length % (room - more) + more for length in lengths if length % (room - more)]
    left: list[int] = []
    for size in sorted(sizes, reverse=True):
        fits = [i for i, space in enumerate(left) if space >= size]
        if fits:
            left[min(fits, key=left.__getitem__)] -= size
        else:
            left.append(room - size)
    return len(left)


@given(st.lists(st.integers(0, 70), max_size=60), st.integers(4, 24), st.integers(0, 3))
@settings(max_examples=300, deadline=None)
def test_nothing_is_lost_and_rows_are_those_of_best_fit_or_fewer(lengths: list[int], room: int, more: int) -> None:
    packing = pack(np.array(lengths, np.int64), room, more)
    rows = pieces(packing)
    # Full rows stand by themselves; of the others there is one more than full ones would be, or looking ahead tries.
    others = [row for row in rows if len(row) > 1 or row[0][2] < room - more]
    least = -(-sum(length + more for row in others for _, _, length in row) // room)
    expected = naive_rows(lengths, room, more)
    assert len(rows) == len(packing) and (len(rows) == expected or (len(rows) < expected and expected > least + 1))
    seen = [np.zeros(length, int) for length in lengths]
    for row in rows:
        assert row and sum(length + more for _, _, length in row) <= room
        for document, offset, length in row:
            assert length > 0
            seen[document][offset : offset + length] += 1
    assert all((times == 1).all() for times in seen)
    alone = [len(row) == 1 for row in rows]
    assert alone == sorted(alone, reverse=True)


def test_long_documents_are_cut_into_whole_rows() -> None:
    rows = pieces(pack(np.array([20, 3]), 10, 2))
    assert sorted(rows) == [[(0, 0, 8)], [(0, 8, 8)], [(0, 16, 4)], [(1, 0, 3)]]


def test_hardly_any_padding() -> None:
    rng = np.random.default_rng(1)
    lengths: npt.NDArray[np.int64] = rng.lognormal(4, 1, 200_000).astype(np.int64) + 1
    packing = pack(lengths, 128)
    used = int(packing.lengths.sum()) + 2 * len(packing.lengths)
    assert packing.lengths.sum() == lengths.sum()
    assert 1 - used / (128 * len(packing)) < 0.02


@pytest.mark.parametrize("room", [64, 128, 512])
def test_captions_leave_no_room_either(room: int) -> None:
    """Hardly any is as short as what best fit leaves of a row: 3.2 % of rows of 64 tokens."""
    lengths = np.random.default_rng(1).normal(13.5, 4, 30_000).astype(np.int64).clip(6)
    packing = pack(lengths, room)
    assert packing.lengths.sum() == lengths.sum()
    assert 1 - (int(packing.lengths.sum()) + 2 * len(packing.lengths)) / (room * len(packing)) < 0.005


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(30, 40))
@settings(max_examples=100, deadline=None)
def test_the_first_row_is_as_full_as_can_be(sizes: list[int], room: int) -> None:
    rows = pack_with_lookahead(np.array(sizes, np.int32), room)
    largest = max(sizes)
    others = sorted(sizes)[:-1]
    sums = [sum(some) for n in range(len(others) + 1) for some in itertools.combinations(others, n)]
    first = [size for size, row in zip(sizes, rows, strict=True) if row == 0]
    assert max(first) == largest and sum(first) == largest + max(found for found in sums if found <= room - largest)
    assert np.bincount(rows, sizes).max() <= room and rows.max() + 1 == len(set(rows.tolist()))


def test_no_room_for_a_token() -> None:
    with pytest.raises(ValueError, match="into rows of 2 tokens"):
        pack(np.array([3]), 2)
    assert len(pack(np.empty(0, np.int64), 8)) == 0
