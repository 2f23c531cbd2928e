"""The plan of an epoch: each example once, within the budget, little padding, little memory, a pure function."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.data.batch_plan import EpochPlan, draw, plan_epoch, split

Lengths = npt.NDArray[np.int32]


def captions(n: int, seed: int = 0) -> tuple[Lengths, Lengths]:
    """Return correlated normal lengths, 13 with a deviation of 4, as image captions have them."""
    noise = np.random.default_rng(seed).normal(size=(3, n))
    sides = 13 + 4 * (np.sqrt(0.7) * noise[0] + np.sqrt(0.3) * noise[1:])
    src, tgt = np.maximum(2, sides.round()).astype(np.int32)
    return src, tgt


def batches(plan: EpochPlan) -> list[npt.NDArray[np.int64]]:
    return [plan.batch(i) for i in range(plan.n_batches)]


def padded(src: Lengths, tgt: Lengths, batch: npt.NDArray[np.int64]) -> int:
    return (int(src[batch].max()) + int(tgt[batch].max())) * len(batch)


def real_share(src: Lengths, tgt: Lengths, plan: EpochPlan) -> float:
    real = sum(int(src[batch].sum() + tgt[batch].sum()) for batch in batches(plan))
    return real / sum(padded(src, tgt, batch) for batch in batches(plan))


length = st.integers(1, 300) | st.integers(1, 40) | st.integers(1, 2**31 - 1)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(length, length), max_size=120), st.integers(1, 4000), st.integers(0, 5))
def test_each_example_once_within_the_budget(pairs: list[tuple[int, int]], max_tokens: int, epoch: int) -> None:
    src, tgt = (np.array([pair[side] for pair in pairs], np.int32) for side in (0, 1))
    plan = plan_epoch(src, tgt, seed=4, epoch=epoch, max_tokens=max_tokens)
    found = batches(plan)
    assert all(len(batch) for batch in found)
    assert sorted(i for batch in found for i in batch.tolist()) == list(range(len(pairs)))
    assert all(len(batch) == 1 or padded(src, tgt, batch) <= max_tokens for batch in found)


@pytest.mark.parametrize("max_tokens", [2048, 4096, 8192])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_real_tokens_fill_caption_batches(max_tokens: int, epoch: int) -> None:
    src, tgt = captions(29_000)
    plan = plan_epoch(src, tgt, seed=1, epoch=epoch, max_tokens=max_tokens)
    assert real_share(src, tgt, plan) >= 0.94
    # The budget is used, too: few batches stay below it.
    assert plan.n_batches <= 1.03 * (int(src.sum() + tgt.sum()) / 0.94) / max_tokens


def test_long_tails_fill_batches() -> None:
    rng = np.random.default_rng(2)
    src = np.maximum(1, rng.lognormal(4, 1.0, 50_000)).astype(np.int32)
    tgt = np.maximum(1, src * rng.lognormal(0, 0.2, 50_000)).astype(np.int32)
    assert real_share(src, tgt, plan_epoch(src, tgt, seed=1, epoch=0, max_tokens=16_384)) >= 0.92


def test_is_a_pure_function() -> None:
    src, tgt = captions(3000)
    before = (src.copy(), tgt.copy())
    first = plan_epoch(src, tgt, seed=1, epoch=3, max_tokens=1000)
    plan_epoch(src, tgt, seed=9, epoch=0, max_tokens=77)
    again = plan_epoch(src.astype(np.int64), tgt, seed=1, epoch=3, max_tokens=1000)
    for a, b in zip(batches(first), batches(again), strict=True):
        assert a.tolist() == b.tolist()
    assert np.array_equal(src, before[0])
    assert np.array_equal(tgt, before[1])


@pytest.mark.parametrize("other", [{"seed": 2}, {"epoch": 1}])
def test_seed_and_epoch_choose_the_order(other: dict[str, int]) -> None:
    src, tgt = captions(3000)
    key = {"seed": 1, "epoch": 0}
    one = plan_epoch(src, tgt, max_tokens=1000, **key)
    two = plan_epoch(src, tgt, max_tokens=1000, **(key | other))
    shared = {tuple(sorted(batch.tolist())) for batch in batches(one)} & {
        tuple(sorted(batch.tolist())) for batch in batches(two)
    }
    assert len(shared) <= one.n_batches // 20


def test_batches_come_in_no_order_of_length() -> None:
    src, tgt = captions(20_000)
    plan = plan_epoch(src, tgt, seed=1, epoch=0, max_tokens=1000)
    means = [float(src[batch].mean()) for batch in batches(plan)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 4 / np.sqrt(len(means))


@pytest.mark.sample(2)
@pytest.mark.parametrize("varied", ["seed", "epoch"])
def test_ties_break_fairly(varied: str) -> None:
    """Example 0 of 40 equal ones meets each of the others equally often, over seeds as over epochs."""
    same = np.full(40, 5, np.int32)
    met: Counter[int] = Counter()
    for number in range(300):
        plan = plan_epoch(same, same, max_tokens=100, **({"seed": 3, "epoch": 3} | {varied: number}))
        (mates,) = [batch.tolist() for batch in batches(plan) if 0 in batch]
        met.update(set(mates) - {0})
    expected = met.total() / 39
    assert sum((met[i] - expected) ** 2 for i in range(1, 40)) / expected < 73  # 38 degrees of freedom, 99.9 % is 70.7


def test_rare_lengths_get_new_neighbours() -> None:
    """No two of these examples have the same lengths, so ties alone would never mix them."""
    lengths = np.arange(1, 61, dtype=np.int32)
    mates = set()
    for epoch in range(40):
        plan = plan_epoch(lengths, lengths, seed=1, epoch=epoch, max_tokens=600)
        mates |= {tuple(sorted(batch.tolist())) for batch in batches(plan) if 30 in batch}
    assert len(mates) > 20  # with bands of one width 5, with a full first batch 17


@pytest.mark.sample(2)
@pytest.mark.parametrize("max_tokens", [20, 4096])
def test_memory_stays_below_12_bytes_per_example(max_tokens: int) -> None:
    """Measured on the second half, so that temporaries of a fixed size do not count."""
    peaks = []
    for n in (300_000, 600_000):
        src, tgt = captions(n)
        tracemalloc.start()
        plan = plan_epoch(src, tgt, seed=1, epoch=0, max_tokens=max_tokens)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(plan.order) == n
    assert peaks[1] - peaks[0] <= 12 * 300_000


def test_a_batch_reads_only_its_own_indices() -> None:
    src, tgt = captions(1000)
    plan = plan_epoch(src, tgt, seed=1, epoch=0, max_tokens=1000)
    with pytest.raises(IndexError, match=f"batch {plan.n_batches} of {plan.n_batches}"):
        plan.batch(plan.n_batches)
    with pytest.raises(IndexError):
        plan.batch(-1)
    assert plan.batch(0).base is None
    assert plan.batch(0).dtype == np.int64


def test_chosen_examples_with_repeats() -> None:
    src, tgt = captions(500)
    chosen = np.array([*range(100, 200), *range(150, 200), 7], np.uint32)
    plan = plan_epoch(src, tgt, seed=1, epoch=0, max_tokens=600, examples=chosen)
    found = batches(plan)
    assert Counter(i for batch in found for i in batch.tolist()) == Counter(chosen.tolist())
    assert all(padded(src, tgt, batch) <= 600 for batch in found)


def test_refuses_what_makes_no_plan() -> None:
    src, tgt = captions(10)
    with pytest.raises(ValueError, match="10 source, 9 target lengths"):
        plan_epoch(src, tgt[:9], seed=1, epoch=0, max_tokens=100)
    with pytest.raises(ValueError, match="max_tokens=0"):
        plan_epoch(src, tgt, seed=1, epoch=0, max_tokens=0)


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 9))
def test_slices_are_the_batch_and_near_equal(costs: list[int], n: int) -> None:
    batch = np.arange(100, 100 + len(costs))
    slices = split(batch, np.array(costs, np.int64), n)
    assert len(slices) == n
    assert np.concatenate(slices).tolist() == batch.tolist()
    totals = [sum(costs[i - 100] for i in part) for part in slices]
    assert all(abs(total - sum(costs) / n) <= max(costs, default=0) for total in totals)


def assert_shared_out(pairs: list[tuple[int, int]], max_tokens: int, world: int, accumulate: int) -> None:
    """Check that the slices of all ranks, one after the other, are the batches that one process alone would take."""
    src, tgt = (np.array([pair[side] for pair in pairs], np.int32) for side in (0, 1))
    costs, used = src.astype(np.int64) + tgt, []
    for batch in batches(plan_epoch(src, tgt, seed=4, epoch=world, max_tokens=max_tokens)):
        slices = split(batch, costs[batch], world * accumulate)
        shares = [slices[rank * accumulate : (rank + 1) * accumulate] for rank in range(world)]
        assert {len(slices) for slices in shares} == {accumulate}
        taken = [i for slices in shares for part in slices for i in part.tolist()]
        assert taken == batch.tolist()
        used += taken
    assert sorted(used) == list(range(len(pairs)))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=100),
    st.integers(1, 3000),
    st.integers(1, 64),
    st.integers(1, 8),
)
def test_any_number_of_ranks_takes_each_example_once_an_epoch(
    pairs: list[tuple[int, int]], max_tokens: int, world: int, accumulate: int
) -> None:
    assert_shared_out(pairs, max_tokens, world, accumulate)


def test_each_number_of_ranks_takes_each_example_once_an_epoch() -> None:
    lengths = np.random.default_rng(3).integers(1, 40, (150, 2)).tolist()
    for world in range(1, 65):
        assert_shared_out(lengths, 1000, world, 1 + world % 3)


def test_slices_by_hand() -> None:
    parts = split(np.array([7, 8, 9, 3, 4]), np.array([6, 2, 2, 1, 1]), 2)
    assert [part.tolist() for part in parts] == [[7], [8, 9, 3, 4]]
    assert [len(part) for part in split(np.array([7]), np.array([5]), 4)].count(0) == 3


def test_weights_draw_whole_copies_and_random_halves() -> None:
    drawn = Counter(draw((1000, 400, 300), (2.0, 0.5, 0.0), seed=1, epoch=0).tolist())
    assert all(drawn[i] == 2 for i in range(1000))
    half = {i for i in range(1000, 1400) if drawn[i]}
    assert len(half) == 200
    assert all(drawn[i] == 1 for i in half)
    assert not any(drawn[i] for i in range(1400, 1700))
    again = Counter(draw((1000, 400, 300), (2.0, 0.5, 0.0), seed=1, epoch=1).tolist())
    both = half & {i for i in range(1000, 1400) if again[i]}
    assert 70 <= len(both) <= 130  # 100 expected, deviation 5


def test_mixed_weight_and_equal_corpora_draw_apart() -> None:
    drawn = Counter(draw((100, 100), (1.25, 1.25), seed=1, epoch=0).tolist())
    assert drawn.total() == 250
    twice = [{i % 100 for i, count in drawn.items() if count == 2 and i // 100 == corpus} for corpus in (0, 1)]
    assert len(twice[0]) == len(twice[1]) == 25
    assert twice[0] != twice[1]
