"""Chance for word vectors: numbers from a counter, words by their counts, frequent words left out."""

from __future__ import annotations

import numpy as np
import pytest

from attnkit.kernels import sampling
from attnkit.kernels.sampling import alias_table, keep_thresholds, key_of


@pytest.fixture(autouse=True)
def wrapped() -> object:
    """Let numbers of numpy go around, as compiled ones do."""
    with np.errstate(over="ignore"):
        yield


def plain(function: object) -> object:
    return getattr(function, "py_func", function)


def test_numbers_are_splitmix64s() -> None:
    # The first five after 1234567, by the C program of its authors.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821]
    number = plain(sampling.random_bits)
    assert [int(number(np.uint64(1234567), np.uint64(n + 1))) for n in range(5)] == known  # type: ignore[operator]


def test_keys_differ() -> None:
    keys = {key_of(*parts) for parts in [(1,), (2,), (1, 0), (0, 1), (1, 1), (1, 2), (-1, 1), (1, 0, 0)]}
    assert len(keys) == 8 and all(0 <= key < 1 << 64 for key in keys)


@pytest.mark.parametrize("power", [0.0, 0.75, 1.0, -0.5])
def test_words_are_drawn_by_their_counts(power: float) -> None:
    counts = np.array([1_000_000, 5000, 300, 300, 7, 1, 0])
    prob, alias = alias_table(counts, power)
    share = np.zeros(7)
    for word in range(7):  # each cell is as likely; its threshold splits it
        own = (float(prob[word]) + (alias[word] == word)) / 2**32
        share[word] += own / 7
        share[alias[word]] += (1 - own) / 7
    weights = np.where(counts > 0, np.maximum(counts, 1.0) ** power, 0)
    np.testing.assert_allclose(share, weights / weights.sum(), atol=1e-8)


def test_draws_fall_as_the_table_says() -> None:
    counts = np.array([50, 20, 20, 5, 5])
    prob, alias = alias_table(counts, 1.0)
    drawn, number = plain(sampling.drawn), plain(sampling.random_bits)
    original = sampling.random_bits
    found = [drawn(number(np.uint64(9), np.uint64(n)), prob, alias) for n in range(20_000)]  # type: ignore[operator]
    assert original is sampling.random_bits
    np.testing.assert_allclose(np.bincount(found, minlength=5) / 20_000, counts / 100, atol=0.012)


def test_frequent_words_stay_as_seldom_as_said() -> None:
    counts = np.array([60_000, 30_000, 9000, 900, 100])
    sample = 1e-2
    kept = (keep_thresholds(counts, sample).astype(float) + 1) / 2**32
    # word2vec.c: (sqrt(count / (sample * total)) + 1) * (sample * total) / count
    total = counts.sum()
    said = [(np.sqrt(c / (sample * total)) + 1) * (sample * total) / c for c in counts]
    np.testing.assert_allclose(kept, np.minimum(said, 1), atol=1e-9)
    number, stays = plain(sampling.random_bits), plain(sampling.stays)
    for threshold, share in zip(keep_thresholds(counts, sample), kept, strict=True):
        found = [stays(number(np.uint64(4), np.uint64(n)), threshold) for n in range(4000)]  # type: ignore[operator]
        assert np.mean(found) == pytest.approx(share, abs=0.03)
    assert (keep_thresholds(counts, 0.0) == 2**32 - 1).all()
