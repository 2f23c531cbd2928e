"""Samples have the distribution that is asked for, and depend on seed, key and number alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.sampling import draw, uniform
from attnkit.decoding.search import Sources, search


def chi_square(counts, probs):
    expected = probs * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def limit(n_classes):
    """Five standard deviations above the mean of the statistic."""
    return n_classes - 1 + 5 * np.sqrt(2 * (n_classes - 1))


def test_the_numbers_are_uniform_and_independent():
    noise = uniform(3, range(100), 20, 50)
    assert noise.shape == (50, 100, 20)
    assert noise.min() >= 0
    assert noise.max() < 1
    counts = np.histogram(noise, bins=50, range=(0, 1))[0]
    assert chi_square(counts, np.full(50, 1 / 50)) < limit(50)
    assert len(np.unique(noise)) == noise.size
    for axis in range(3):
        first, second = np.take(noise, range(noise.shape[axis] - 1), axis), np.delete(noise, 0, axis)
        pairs = np.histogram2d(first.ravel(), second.ravel(), bins=10, range=[(0, 1)] * 2)[0]
        assert chi_square(pairs, np.full((10, 10), 0.01)) < limit(100)


def test_the_numbers_depend_on_every_ingredient_and_on_nothing_else():
    noise = uniform(3, [7, -1, 2**70 + 5], 4, 6)
    assert np.array_equal(uniform(3, [2**70 + 5], 2, 3)[:, 0], noise[:3, 2, :2])
    assert np.array_equal(uniform(3, [2**64 - 1], 4, 6)[:, 0], noise[:, 1])
    assert not np.isin(uniform(4, [7], 4, 6), noise).any()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_match_the_distribution(make_model, temperature):
    model = make_model(1, 12)
    src = torch.tensor([[5, 6, 7]]).expand(4000, -1)
    config = SearchConfig(sampling=True, temperature=temperature, num_hypotheses=5, max_length=1, seed=11)
    found = search([model], Sources(src), config)
    words = [2 if h.finished else h.ids[0] for hypotheses in found for h in hypotheses]
    hidden, _ = model.step(torch.tensor([[1]]), model.start(src[:1], None, 1, 1))
    logits = model.head(hidden)[0, 0]
    probs = (logits[2:] / temperature).softmax(-1).numpy()  # padding and begin are left out
    assert chi_square(np.bincount(words, minlength=12)[2:], probs) < limit(10)
    assert found[0][0].log_prob == pytest.approx(float(logits.log_softmax(-1)[words[0]]), abs=1e-5)


@pytest.mark.parametrize(("top_k", "top_p"), [(7, 1.0), (0, 0.6), (0, 0.9), (20, 0.7), (0, 0.01), (10**6, 0.999)])
@pytest.mark.parametrize("sharpness", [0.05, 1.0, 4.0])
def test_the_set_of_words_is_exactly_the_one_asked_for(top_k, top_p, sharpness):
    """Flat rows need more words than are sorted at first. The reference keeps sets as plain lists."""
    logits = torch.randn(2, 700, generator=torch.Generator().manual_seed(5)) * sharpness
    noise = torch.from_numpy(uniform(1, range(2), 1, 1000))[..., 0]
    for row in range(2):
        order = sorted(range(700), key=lambda word: (-float(logits[row, word]), word))
        order = order[: top_k or 700]
        probs = logits[row, order].double().softmax(-1).tolist()
        kept, held = [], 0.0
        for word, prob in zip(order, probs, strict=True):
            if held >= top_p:
                break
            kept.append(word)
            held += prob
        drawn = draw(logits[row].expand(1000, -1), noise[:, row], top_k, top_p)
        assert set(drawn.tolist()) <= set(kept)
        if len(kept) <= 20:
            probs = logits[row, kept].double().softmax(-1).numpy()
            counts = np.array([(drawn == word).sum() for word in kept])
            likely = probs * 1000 > 5
            if likely.sum() > 1 and likely.all():
                assert chi_square(counts, probs) < limit(len(kept))


def test_words_at_the_ends_of_the_distribution():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]])
    for number, word in ((0.0, 1), (0.4999, 1), (0.5, 3), (1 - 2.0**-52, 3)):
        assert draw(logits, torch.tensor([number], dtype=torch.float64), 0, 1.0).tolist() == [word]
        assert draw(logits, torch.tensor([number], dtype=torch.float64), 4, 1.0).tolist() == [word]


def test_more_samples_leave_the_first_ones_alone(make_model, make_sources, pad):
    src, mask = pad(make_sources(1, 15))
    few, many = (
        search([make_model()], Sources(src, mask), SearchConfig(sampling=True, num_hypotheses=n)) for n in (2, 6)
    )
    assert [[h.ids for h in each] for each in few] == [[h.ids for h in each[:2]] for each in many]
    assert len({tuple(h.ids) for each in many for h in each}) > 40


def test_seed_and_key_change_the_sample(make_model):
    src = torch.tensor([[5, 6, 7]]).expand(30, -1)
    config = SearchConfig(sampling=True)
    found = [h[0].ids for h in search([make_model()], Sources(src, keys=[4] * 15 + list(range(15))), config)]
    assert all(ids == found[4 + 15] for ids in found[:15])
    assert len({tuple(ids) for ids in found}) > 10
    first, other = (
        [h[0].ids for h in search([make_model()], Sources(src), SearchConfig(sampling=True, seed=seed))]
        for seed in (1, 2)
    )
    assert sum(a == b for a, b in zip(first, other, strict=True)) < 15
