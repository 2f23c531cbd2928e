"""What noise does, how often, and what it depends on: seed, epoch, row, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from attnkit.data.config import NoiseConfig
from attnkit.data.denoising import Noise

BLANK = 3
N_ROWS, LENGTH = 400, 50


def laid(rows: list[list[int]]) -> tuple[Any, Any]:
    return np.array([id for row in rows for id in row], np.int64), np.array([len(row) for row in rows], np.int64)


def noisy(
    rows: list[list[int]], numbers: list[int] | None = None, seed: int = 1, epoch: int = 0, **rates: float
) -> Any:
    """Return the noisy rows as lists."""
    which = np.array(numbers if numbers is not None else range(len(rows)), np.int64)
    ids, lengths = Noise(NoiseConfig(**rates), seed, epoch).corrupt_tokens(*laid(rows), which, BLANK)
    return [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]


ROWS = [[10 + (7 * row + place) % 97 for place in range(LENGTH)] for row in range(N_ROWS)]
PLACES = [list(range(10, 10 + LENGTH)) for _ in range(N_ROWS)]


def within(share: float, rate: float, n: int) -> bool:
    return abs(share - rate) < 4 * (rate * (1 - rate) / n) ** 0.5


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_tokens_are_dropped_at_their_rate_and_keep_their_order(rate: float) -> None:
    found = noisy(PLACES, word_dropout=rate)
    assert within(1 - sum(map(len, found)) / (N_ROWS * LENGTH), rate, N_ROWS * LENGTH)
    assert all(row == sorted(row) for row in found)
    counts = np.bincount([id for row in found for id in row], minlength=10 + LENGTH)[10:]
    assert abs(counts / N_ROWS - (1 - rate)).max() < 5 * (rate * (1 - rate) / N_ROWS) ** 0.5, "no place is spared"


def test_one_token_of_a_row_stays_at_least() -> None:
    rows = [[5], [5, 6], [], [7, 8, 9]] * 200
    found = noisy(rows, word_dropout=0.99)
    assert all(bool(row) == bool(clean) for row, clean in zip(found, rows, strict=True))


@pytest.mark.parametrize("rate", [0.15, 1.0])
def test_tokens_are_masked_at_their_rate_and_the_others_stay(rate: float) -> None:
    found = noisy(ROWS, mask_prob=rate)
    pairs = [(a, b) for row, clean in zip(found, ROWS, strict=True) for a, b in zip(row, clean, strict=True)]
    masked = [a == BLANK for a, _ in pairs]
    assert all(a in (b, BLANK) for a, b in pairs)
    assert (rate == 1.0 and all(masked)) or within(sum(masked) / len(pairs), rate, len(pairs))


def test_shuffling_all_makes_every_place_equally_likely() -> None:
    found = np.array(noisy(PLACES, shuffle_prob=1.0)) - 10
    assert (np.sort(found, 1) == np.arange(LENGTH)).all(), "a row keeps its own tokens"
    halves = np.histogram2d(found.ravel() // 10, np.tile(np.arange(LENGTH), N_ROWS) // 10, 5)[0]
    expected = N_ROWS * LENGTH / 25
    assert abs(halves - expected).max() < 5 * expected**0.5


def test_shuffling_some_leaves_the_others_where_they_are() -> None:
    found = np.array(noisy(PLACES, shuffle_prob=0.3)) - 10
    moved = (found != np.arange(LENGTH)).mean()
    # Of those chosen, one in each row stays on average where it was.
    assert 0.25 < moved < 0.3
    assert (np.sort(found, 1) == np.arange(LENGTH)).all()


def test_noise_depends_on_seed_epoch_and_row_alone() -> None:
    rates = {"word_dropout": 0.3, "mask_prob": 0.2, "shuffle_prob": 0.4}
    whole = noisy(ROWS, **rates)
    some = [17, 3, 200]
    assert noisy([ROWS[i] for i in some], some, **rates) == [whole[i] for i in some]
    assert noisy(ROWS, seed=2, **rates) != whole != noisy(ROWS, epoch=1, **rates)
    assert noisy([PLACES[0]] * 2, [0, 1], **rates)[0] != noisy([PLACES[0]] * 2, [0, 1], **rates)[1]


def test_no_noise_changes_nothing() -> None:
    assert noisy(ROWS) == ROWS
    assert not NoiseConfig().any


def test_vectors_are_masked_with_the_mean_of_their_column() -> None:
    vectors = np.random.default_rng(1).normal(size=(500, 20)).astype(np.float32)
    mean, rows = vectors.mean(0), np.arange(500)
    found = Noise(NoiseConfig(mask_prob=0.25), 1, 0).corrupt_vectors(vectors, rows, mean)
    masked = found == mean
    assert within(masked.mean(), 0.25, masked.size) and (found[~masked] == vectors[~masked]).all()
    again = Noise(NoiseConfig(mask_prob=0.25), 1, 0).corrupt_vectors(vectors[[7, 2]], rows[[7, 2]], mean)
    assert (again == found[[7, 2]]).all()
