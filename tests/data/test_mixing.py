"""Shares of several corpora: what an epoch holds of each, counted."""

from __future__ import annotations

import numpy as np
import pytest

from attnkit.data.packed_batches import CorpusMixture, sampling_probabilities


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 1.0])
def test_shares_grow_as_a_power(alpha: float) -> None:
    sizes = [900, 90, 10]
    found = sampling_probabilities(sizes, alpha)
    assert sum(found) == pytest.approx(1)
    assert found[0] / found[1] == pytest.approx(10**alpha) and found[1] / found[2] == pytest.approx(9**alpha)


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0), (0.4, 2.5, 3.0), (0.0, 1.2, 0.7)])
def test_an_epoch_holds_each_corpus_as_often_as_it_weighs(weights: tuple[float, ...]) -> None:
    sizes = (50, 20, 7)
    mixture = CorpusMixture(sizes, weights)
    for epoch in range(3):
        drawn = mixture.draw(1, epoch)
        numbers = np.arange(77) if drawn is None else drawn.astype(np.int64)
        assert len(set(numbers.tolist())) == len(numbers) and numbers.max() < len(mixture)
        rows = mixture.rows(numbers)
        times = np.bincount(rows, minlength=77)
        for weight, part in zip(weights, np.split(times, [50, 70]), strict=True):
            assert part.sum() == round(weight % 1 * len(part)) + int(weight) * len(part)
            assert part.max() - part.min() <= 1, "a row comes a second time after every other has come"
    lengths = np.arange(77, dtype=np.int32)
    assert (mixture.spread(lengths) == mixture.rows(np.arange(len(mixture)))).all()


def test_what_is_left_out_is_new_in_each_epoch() -> None:
    mixture = CorpusMixture((100, 100), (0.5, 1.5))
    first, second, again = (set(mixture.rows(mixture.draw(7, e).astype(np.int64)).tolist()) for e in (0, 1, 0))  # type: ignore[union-attr]
    assert first == again != second
