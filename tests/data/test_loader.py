"""The stream of steps: a pure function of the position, the same global batch for any number of ranks."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from attnkit.data.config import DataConfig
from attnkit.data.loader import BatchLoader, DataPosition
from attnkit.data.pairs import PairBatch, Pairs, write_pairs
from attnkit.errors import DataError
from attnkit.text.encoding import EncodedLines
from attnkit.training.records import StepBatches


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    """Two corpora, 300 and 100 pairs; the first id of a source is its number + 10, so that rows tell who they are."""
    lengths = np.random.default_rng(0).integers(1, 12, (2, 400))
    rows = [([i + 10] + [5] * s, [i + 10] + [6] * t) for i, (s, t) in enumerate(lengths.T.tolist())]
    corpora = [[list(map(EncodedLines.of, zip(*part, strict=True)))] for part in (rows[:300], rows[300:])]
    config = DataConfig(src=("a", "b"), tgt=("a", "b"))
    return write_pairs(tmp_path_factory.mktemp("feed") / "pairs", corpora, (1000, 1000), config)


def real_tokens(batch: PairBatch) -> int:
    return (batch.src.numel() if batch.src_mask is None else int(batch.src_mask.sum())) + len(batch.targets)


def members(step: StepBatches) -> list[int]:
    return [i - 10 for batch in step.micro_batches for i in batch.src[:, 0].tolist()]


def epoch_of(feed: BatchLoader, epoch: int) -> list[StepBatches]:
    steps, position = [], DataPosition(epoch, 0)
    while position.epoch == epoch:
        step, position = feed.batch_at(position)
        steps.append(step)
    assert position == DataPosition(epoch + 1, 0)
    return steps


def test_an_epoch_uses_each_pair_once(pairs: Pairs) -> None:
    feed = BatchLoader(pairs, seed=1, max_tokens=300)
    orders = []
    for epoch in (0, 1):
        steps = epoch_of(feed, epoch)
        assert sorted(i for step in steps for i in members(step)) == list(range(400))
        assert steps[-1].epoch == epoch + 1
        assert all(a.epoch < b.epoch for a, b in itertools.pairwise(steps))
        orders.append([members(step) for step in steps])
    assert orders[0] != orders[1]


def test_steps_depend_on_the_position_alone(pairs: Pairs) -> None:
    feed = BatchLoader(pairs, seed=1, max_tokens=300)
    straight = {(epoch, i): step for epoch in (0, 1, 2) for i, step in enumerate(epoch_of(feed, epoch))}
    for epoch, index in [(2, 1), (0, 3), (2, 0), (1, 2), (0, 0)]:
        for other in (feed, BatchLoader(pairs, seed=1, max_tokens=300)):
            step, _ = other.batch_at(DataPosition(epoch, index))
            same = straight[epoch, index]
            assert members(step) == members(same)
            assert (step.counts, step.n_tokens, step.epoch) == (same.counts, same.n_tokens, same.epoch)


@pytest.mark.parametrize(("world", "accumulate"), [(1, 2), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)])
def test_the_global_batch_is_the_same_however_it_is_shared(pairs: Pairs, world: int, accumulate: int) -> None:
    alone = BatchLoader(pairs, seed=1, max_tokens=300)
    ranks = [BatchLoader(pairs, 1, 300, accumulate, rank, world) for rank in range(world)]
    for index in range(alone.plan(0).n_batches):
        whole, after = alone.batch_at(DataPosition(0, index))
        shares = [feed.batch_at(DataPosition(0, index)) for feed in ranks]
        assert {position for _, position in shares} == {after}
        # In the same order, each pair once.
        assert [i for share, _ in shares for i in members(share)] == members(whole)
        for share, _ in shares:
            assert (share.counts, share.n_tokens) == (whole.counts, whole.n_tokens)
            assert len(share.micro_batches) <= accumulate
        targets = [len(batch.targets) for share, _ in shares for batch in share.micro_batches]
        assert sum(targets) == whole.counts["nll"]
        tokens = [real_tokens(batch) for share, _ in shares for batch in share.micro_batches]
        assert sum(tokens) == whole.n_tokens
        longest = max(map(sum, zip(*(side.tolist() for side in pairs.lengths), strict=True)))
        assert max(tokens) <= whole.n_tokens / (world * accumulate) + longest


def test_more_slices_than_pairs_leave_some_ranks_without(pairs: Pairs) -> None:
    feeds = [BatchLoader(pairs, seed=1, max_tokens=1, rank=rank, world=4) for rank in range(4)]
    shares = [feed.batch_at(DataPosition())[0] for feed in feeds]
    assert sorted(len(share.micro_batches) for share in shares) == [0, 0, 0, 1]
    assert len({(share.counts["nll"], share.n_tokens) for share in shares}) == 1


@pytest.mark.parametrize("world", [2, 4])
def test_padding_batches_make_ranks_equal(tmp_path: Path, world: int) -> None:
    rows = [[i + 10, 5] for i in range(3)]
    few = write_pairs(tmp_path / "p", [[[EncodedLines.of(rows)] * 2]], (1000, 1000), DataConfig(src=("a",), tgt=("b",)))
    feeds = [BatchLoader(few, 1, 300, 2, rank, world, equalize_ranks=True) for rank in range(world)]
    plan = feeds[0].plan(0)
    for index in range(plan.n_batches):
        shares = [feed.batch_at(DataPosition(0, index))[0] for feed in feeds]
        assert len({len(share.micro_batches) for share in shares}) == 1
        assert any(share.n_padding_batches for share in shares)
        counted = [share.micro_batches[: len(share.micro_batches) - share.n_padding_batches] for share in shares]
        found = [i - 10 for batches in counted for batch in batches for i in batch.src[:, 0].tolist()]
        assert sorted(found) == sorted(plan.batch(index).tolist())


def test_weights_say_how_often(pairs: Pairs) -> None:
    feed = BatchLoader(pairs, seed=1, max_tokens=300, sampler=pairs.sampler((0.5, 2.0)))
    used = [Counter(i for step in epoch_of(feed, epoch) for i in members(step)) for epoch in (0, 1)]
    for counts in used:
        assert sum(counts[i] for i in range(300)) == 150
        assert all(counts[i] == 2 for i in range(300, 400))
    assert used[0] != used[1]


def test_weights_of_one_are_none(pairs: Pairs) -> None:
    assert pairs.sampler(None) is pairs.sampler((1.0, 1.0)) is None


def test_one_plan_is_kept(pairs: Pairs) -> None:
    feed = BatchLoader(pairs, seed=1, max_tokens=300)
    assert feed.plan(0) is feed.plan(0)
    kept = feed.plan(1)
    feed.plan(0)
    assert feed.plan(1) is not kept


def test_misuse_is_refused(pairs: Pairs, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rank 2 of 2"):
        BatchLoader(pairs, seed=1, max_tokens=300, rank=2, world=2)
    with pytest.raises(ValueError, match="1 weights for 2 corpora"):
        pairs.sampler((1.0,))
    empty = write_pairs(tmp_path / "p", [[]], (10, 10), DataConfig(src=("a",), tgt=("b",)))
    with pytest.raises(DataError, match="has no examples"):
        BatchLoader(empty, seed=1, max_tokens=300).batch_at(DataPosition())
