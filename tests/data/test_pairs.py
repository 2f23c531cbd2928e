"""Pairs and their batches, against a plain loop."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.data.config import DataConfig
from attnkit.data.pairs import Dropped, Pairs, write_pairs
from attnkit.errors import RunError
from attnkit.text.encoding import EncodedLines

CONFIG = DataConfig(src=("a",), tgt=("b",))
Row = list[int]
row = st.lists(st.integers(4, 99), max_size=7)


def make(folder: Path, *corpora: list[tuple[Row, Row]], config: DataConfig = CONFIG) -> Pairs:
    batches = [[[EncodedLines.of([pair[side] for pair in corpus]) for side in (0, 1)]] for corpus in corpora]
    return write_pairs(folder / "pairs", batches, (100, 100), config)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(row, row), min_size=1, max_size=8), st.data())
def test_batches_equal_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Row, Row]], data: st.DataObject
) -> None:
    pairs = make(tmp_path_factory.mktemp("pairs"), rows)
    indices = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6))
    batch = pairs.batch(np.array(indices))
    longest_src = max(len(rows[i][0]) for i in indices) + 1
    longest_tgt = max(len(rows[i][1]) for i in indices) + 1
    src, mask, tgt_in, positions, targets = [], [], [], [], []
    for b, i in enumerate(indices):
        s, t = rows[i]
        src.append([*s, 2] + [0] * (longest_src - len(s) - 1))
        mask.append([column <= len(s) for column in range(longest_src)])
        tgt_in.append([1, *t] + [0] * (longest_tgt - len(t) - 1))
        for place, token in enumerate([*t, 2]):
            positions.append(b * longest_tgt + place)
            targets.append(token)
    assert batch.src.tolist() == src
    assert batch.tgt_in.tolist() == tgt_in
    assert batch.positions.tolist() == positions
    assert batch.targets.tolist() == targets
    assert (batch.src_mask is None) == all(map(all, mask))
    assert batch.src_mask is None or batch.src_mask.tolist() == mask


def test_shapes_of_the_tensors(tmp_path: Path) -> None:
    batch = make(tmp_path, [([5, 6], [7]), ([5], [7, 8, 9])]).batch(np.array([0, 1]))
    assert batch.src_mask is not None
    for tensor in (batch.src, batch.tgt_in, batch.positions, batch.targets):
        assert tensor.dtype == torch.int64
    assert batch.src_mask.dtype == torch.bool
    moved = batch.to("meta")
    assert moved.src.device.type == moved.targets.device.type == "meta"


def test_an_empty_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="empty batch"):
        make(tmp_path, [([5], [6])]).batch(np.array([], np.int64))


def test_lengths_count_the_end_symbol(tmp_path: Path) -> None:
    pairs = make(tmp_path, [([5, 6], [7]), ([], [7, 8, 9])])
    assert [side.tolist() for side in pairs.lengths] == [[3, 1], [2, 4]]


def test_pairs_beyond_the_limits_are_dropped_and_counted(tmp_path: Path) -> None:
    config = DataConfig(src=("a", "b"), tgt=("a", "b"), max_length=4, max_ratio=2.0)
    first = [([5] * 4, [6] * 4), ([5] * 5, [6]), ([5], [6] * 3), ([5] * 4, [6]), ([5] * 4, [6] * 5)]
    second = [([7], [8])]
    pairs = make(tmp_path, first, second, config=config)
    assert pairs.dropped == Dropped(too_long=2, ratio=1)
    assert pairs.corpora == (2, 1)
    assert [pairs.src[i].tolist() for i in range(3)] == [[5] * 4, [5], [7]]
    assert [pairs.tgt[i].tolist() for i in range(3)] == [[6] * 4, [6] * 3, [8]]
    again = Pairs.open(tmp_path / "pairs")
    assert (again.dropped, again.corpora, again.fingerprint) == (pairs.dropped, pairs.corpora, pairs.fingerprint)


def test_fingerprint_tells_sides_and_corpora_apart(tmp_path: Path) -> None:
    contents = [
        [[([5], [6]), ([5], [6])]],
        [[([6], [5]), ([6], [5])]],
        [[([5], [6])], [([5], [6])]],
        [[([5], [6]), ([5], [7])]],
        [[([5], [6]), ([7], [6])]],
    ]
    prints = set()
    for number, corpora in enumerate(contents):
        (tmp_path / str(number)).mkdir()
        prints.add(make(tmp_path / str(number), *corpora).fingerprint)
    assert len(prints) == len(contents)


def test_uneven_sides_are_refused(tmp_path: Path) -> None:
    one, two = make(tmp_path, [([5], [6])]), tmp_path / "two"
    two.mkdir()
    with pytest.raises(ValueError, match="1 source rows for 2"):
        Pairs(one.src, make(two, [([5], [6]), ([5], [6])]).tgt)


def test_stores_of_another_corpus_are_refused(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    make(tmp_path, [([5], [6])])
    make(tmp_path / "two", [([5], [6]), ([5], [6])])
    (tmp_path / "pairs" / "pairs.json").write_bytes((tmp_path / "two" / "pairs" / "pairs.json").read_bytes())
    with pytest.raises(RunError, match=r"pairs.json does not match"):
        Pairs.open(tmp_path / "pairs")
    (tmp_path / "pairs" / "pairs.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match=r"pairs.json does not describe"):
        Pairs.open(tmp_path / "pairs")


def test_collating_runs_no_python_per_token(tmp_path: Path) -> None:
    """The number of function calls is the same for rows of 3 and of 300 tokens."""
    pairs = make(tmp_path, [([5] * 3, [6] * 3)] * 4 + [([5] * 250, [6] * 250)] * 4)

    def calls(indices: list[int]) -> int:
        count = 0

        def tally(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(tally)
        pairs.batch(np.array(indices))
        sys.setprofile(None)
        return count

    calls([0])
    assert calls([0, 1]) == calls([0, 1, 2, 3]) == calls([4, 5, 6, 7])
