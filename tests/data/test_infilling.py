"""Text infilling beside a plain loop: spans, shares, what a row depends on, and what ranks see of a step."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from attnkit.data.config import DataConfig
from attnkit.data.infilling import InfilledPairs, Infilling
from attnkit.data.loader import BatchLoader, DataPosition
from attnkit.data.pairs import Pairs, write_pairs
from attnkit.data.subword_sampling import SampledPairs, Samplers
from attnkit.text.config import InfillingConfig, VocabularyConfig
from attnkit.text.encoding import EncodedLines
from attnkit.text.subword_sampling import subword_sampler
from attnkit.text.vocabulary import train_vocabulary

MASK, TAG, FIRST = 4, 5, 10
N_ROWS = 6000

Row = list[int]


def lines_of(lengths: list[int]) -> list[Row]:
    """Return rows of ascending ids, so that the place of each kept token is known."""
    return [list(range(FIRST, FIRST + n)) for n in lengths]


def infill(
    rows: list[Row],
    numbers: list[int] | None = None,
    *,
    seed: int = 1,
    epoch: int = 0,
    longest: int = 10**6,
    **keys: Any,
) -> list[Row]:
    ids = np.array([id for row in rows for id in row], np.int64)
    lengths = np.array([len(row) for row in rows], np.int64)
    which = np.array(range(len(rows)) if numbers is None else numbers, np.int64)
    noise = Infilling(InfillingConfig(**keys), MASK, [MASK, TAG], longest)
    found, sizes = noise.corrupt(ids, lengths, which, (seed, epoch))
    assert len(found) == sizes.sum()
    return [part.tolist() for part in np.split(found, np.cumsum(sizes)[:-1])]


def plain_infill(row: Row, mask_prob: float, span_length: float, random: np.random.Generator) -> Row:
    """Lewis et al. 2020, section 2.2, line by line: NumPy's Poisson distribution, and an arrangement by shuffling."""
    budget = math.floor(mask_prob * len(row) + random.random())
    spans: list[int] = []
    while sum(spans) < budget:
        spans.append(min(int(random.poisson(span_length)), budget - sum(spans)))
    slots: list[int | None] = [*spans, *[None] * (len(row) - budget)]
    shuffled = [slots[place] for place in random.permutation(len(slots))]
    out, place = [], 0
    for slot in shuffled:
        out.append(row[place] if slot is None else MASK)
        place += 1 if slot is None else slot
    return out


def gaps_of(row: Row, clean: Row) -> list[tuple[int, int]]:
    """Return the masks between neighbouring kept tokens, and the tokens that they stand for."""
    found, n_masks, before = [], 0, -1
    for id in [*row, FIRST + len(clean)]:
        if id == MASK:
            n_masks += 1
            continue
        n_lost = id - FIRST - before - 1
        assert n_lost == 0 or n_masks > 0, "tokens are lost at masks only"
        if n_masks:
            found.append((n_masks, n_lost))
        n_masks, before = 0, id - FIRST
    return found


@pytest.mark.parametrize(("mask_prob", "span_length"), [(0.3, 3.0), (0.35, 3.5), (0.15, 1.0), (0.8, 6.0)])
def test_gaps_are_distributed_as_those_of_a_plain_loop(mask_prob: float, span_length: float) -> None:
    rows = lines_of([1 + number % 30 for number in range(N_ROWS)])
    random = np.random.default_rng(1)
    found = infill(rows, mask_prob=mask_prob, span_length=span_length)
    expected = [plain_infill(row, mask_prob, span_length, random) for row in rows]
    counts = [
        Counter(gap for row, clean in zip(side, rows, strict=True) for gap in gaps_of(row, clean))
        for side in (found, expected)
    ]
    # The chi-squared statistic of two samples, over all gaps that are seen often enough.
    frequent = [gap for gap in counts[0] | counts[1] if counts[0][gap] + counts[1][gap] >= 20]
    sizes = [sum(count.values()) for count in counts]
    a, b = math.sqrt(sizes[1] / sizes[0]), math.sqrt(sizes[0] / sizes[1])
    statistic = sum(
        (a * counts[0][gap] - b * counts[1][gap]) ** 2 / (counts[0][gap] + counts[1][gap]) for gap in frequent
    )
    n = len(frequent)
    assert n > 10 and {(1, 1), (1, 3), (2, 3)} <= set(frequent)
    assert statistic < n + 5 * math.sqrt(2 * n)
    lengths = [np.array([len(row) for row in side]) for side in (found, expected)]
    deviation = math.sqrt((lengths[0].var() + lengths[1].var()) / N_ROWS)
    assert abs(lengths[0].mean() - lengths[1].mean()) < 4 * deviation


@pytest.mark.parametrize("n", [1, 2, 5, 33])
def test_the_share_is_exact_in_lines_of_any_length(n: int) -> None:
    rows = lines_of([n] * N_ROWS)
    lost = [n - sum(id != MASK for id in row) for row in infill(rows)]
    assert {*lost} <= {math.floor(0.3 * n), math.ceil(0.3 * n)}
    rest = 0.3 * n % 1
    assert abs(np.mean(lost) - 0.3 * n) <= 4 * math.sqrt(rest * (1 - rest) / N_ROWS) + 1e-9


def test_each_span_is_one_mask_and_no_place_is_spared() -> None:
    rows = lines_of([40] * N_ROWS)
    found = infill(rows)
    gaps = [gap for row, clean in zip(found, rows, strict=True) for gap in gaps_of(row, clean)]
    alone = np.bincount([lost for n_masks, lost in gaps if n_masks == 1])
    inserted = alone[0] / alone.sum()
    assert 0.03 < inserted < 0.07, "P(0) of a Poisson distribution with mean 3 is 0.0498"
    lost = 1 - np.bincount([id for row in found for id in row if id != MASK], minlength=FIRST + 40)[FIRST:] / N_ROWS
    # A span that fits into the line covers its ends less often than its middle, and both ends alike.
    assert lost.min() > 0.1 and abs(lost[6:-6] - lost[6:-6].mean()).max() < 5 * math.sqrt(0.25 / N_ROWS)
    assert abs(lost - lost[::-1]).max() < 5 * math.sqrt(0.5 / N_ROWS)
    assert infill(lines_of([7]), mask_prob=1.0, span_length=50.0) == [[MASK]]


def test_a_row_depends_on_seed_epoch_and_its_number_only() -> None:
    rows = lines_of([3 + number % 17 for number in range(60)])
    whole = infill(rows)
    order = [int(number) for number in np.random.default_rng(3).permutation(60)]
    assert infill([rows[number] for number in order], order) == [whole[number] for number in order]
    assert [infill([row], [number])[0] for number, row in enumerate(rows)] == whole
    for changed in (infill(rows, epoch=1), infill(rows, seed=2), infill(rows, [number + 1 for number in range(60)])):
        assert sum(a != b for a, b in zip(whole, changed, strict=True)) > 30


def test_symbols_stay_before_their_tokens() -> None:
    rows = [[TAG, *row[:9], TAG, *row[9:]] for row in lines_of([20] * 500)]
    found = infill(rows, mask_prob=0.5)
    assert all(row[0] == TAG and row.count(TAG) == 2 for row in found)
    for row in found:
        inner = row.index(TAG, 1)
        before, after = row[1:inner], row[inner + 1 :]
        assert all(id == MASK or id < FIRST + 9 for id in before[:-1])
        assert all(id == MASK or id >= FIRST + 9 for id in after)
    for row, found_row in zip(
        [[TAG], [], [TAG, FIRST]] * 40, infill([[TAG], [], [TAG, FIRST]] * 40, mask_prob=1.0), strict=True
    ):
        assert found_row[:1] == row[:1] and {*found_row[1:]} == ({MASK} if len(row) > 1 else set())


def test_no_row_becomes_longer_than_the_model_allows() -> None:
    rows = lines_of([12] * 4000)
    free, limited = infill(rows, span_length=1.0), infill(rows, span_length=1.0, longest=12)
    assert max(map(len, free)) > 12 == max(map(len, limited))
    assert all(a == b for a, b in zip(free, limited, strict=True) if len(a) <= 12)
    kept = [[sum(id != MASK for id in row) for row in side] for side in (free, limited)]
    assert kept[0] == kept[1], "inserted masks are left out, and as many tokens are masked"


@pytest.mark.parametrize("keys", [{"mask_prob": 0.0}, {"mask_prob": 1.1}, {"span_length": 0.5}])
def test_settings_outside_their_range_are_refused(keys: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        InfillingConfig(**keys)


TEXT = [
    "the lower the newer",
    "newest and lowest",
    "a new town",
    "widening towns",
    "lower",
    "the newest town of all",
] * 9
VOCABULARY = train_vocabulary(TEXT, VocabularyConfig(size=330, symbols=("<mask>",)))


@pytest.fixture
def pairs(tmp_path: Path) -> Pairs:
    rows = EncodedLines.of(VOCABULARY.encode(TEXT))
    size = VOCABULARY.vocab_size
    return write_pairs(tmp_path / "pairs", [[[rows, rows]]], (size, size), DataConfig(src=("a",), tgt=("a",)))


def infilled(pairs: Pairs) -> InfilledPairs:
    mask = VOCABULARY.token_id("<mask>")
    assert mask is not None
    return InfilledPairs(pairs, Infilling(InfillingConfig(), mask, [mask], 256))


def sources_of(data: Pairs, position: DataPosition, rank: int = 0, world: int = 1, accumulate: int = 1) -> list[Row]:
    """Return the sources of a rank's share of a step, without padding and EOS."""
    step, _ = BatchLoader(data, 1, 400, accumulate, rank, world).batch_at(position)
    return [row[row > 2].tolist() for batch in step.micro_batches for row in batch.src]


@pytest.mark.parametrize("sampled", [False, True])
def test_ranks_and_micro_batches_read_the_same_corrupted_lines(pairs: Pairs, sampled: bool) -> None:
    if sampled:
        sampler = subword_sampler(VOCABULARY, longest=256, dropout=0.3, alpha=None)
        pairs = SampledPairs(pairs, Samplers(sampler, sampler))
    data = infilled(pairs)
    whole = sources_of(data, DataPosition(2, 1))
    assert sum(VOCABULARY.token_id("<mask>") in row for row in whole) > len(whole) / 2
    assert sorted(whole) != sorted(sources_of(data, DataPosition(3, 1)))
    for world, accumulate in ((1, 3), (2, 2), (3, 1)):
        parts = [row for rank in range(world) for row in sources_of(data, DataPosition(2, 1), rank, world, accumulate)]
        assert sorted(parts) == sorted(whole)


def test_targets_counts_and_lengths_are_those_of_the_whole_lines(pairs: Pairs) -> None:
    data, indices = infilled(pairs), np.arange(len(pairs))
    found, clean = data.batch(indices, 1, 0), pairs.batch(indices)
    np.testing.assert_array_equal(found.targets, clean.targets)
    np.testing.assert_array_equal(found.tgt_in, clean.tgt_in)
    assert data.counts(indices, 1, 0) == {"nll": len(found.targets)}
    lengths: list[NDArray[np.int32]] = [side for one in (data, pairs) for side in one.lengths]
    np.testing.assert_array_equal(lengths[:2], lengths[2:])
    assert data.fingerprint == pairs.fingerprint
    with pytest.raises(ValueError, match="empty batch"):
        data.batch(np.array([], np.int64))
