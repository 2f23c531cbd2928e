"""Beam search against a plain reference that knows no tensors, and against all sequences there are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from attnkit.decoding.beam import beam_search
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Sources, make_batch
from attnkit.decoding.ensemble import Ensemble
from attnkit.decoding.hypotheses import SearchHistory
from attnkit.decoding.search import search

EOS = 2


def next_log_probs(models, source, words, penalty=1.0):
    """Return float32 log-probabilities (V,) after some words, from a fresh run of the models."""
    found = []
    for model in models:
        state = model.start(torch.tensor([source]), None, 1, len(words) + 1)
        for word in [1, *words]:
            hidden, state = model.step(torch.tensor([[word]]), state)
        logits = model.head(hidden)[0, 0].float()
        for word in set(words):
            logits[word] = logits[word] / penalty if logits[word] > 0 else logits[word] * penalty
        found.append(logits.log_softmax(-1))
    if len(found) == 1:
        return found[0].numpy()
    return (torch.stack(found).exp().mean(0)).log().numpy()


def allowed(word, words, config, vocab_size):
    n = config.no_repeat_ngram_size
    if word < EOS or word >= (config.n_words or vocab_size):
        return False
    if word == EOS:
        return len(words) >= config.min_length
    grams = {tuple(words[i : i + n]) for i in range(len(words) - n + 1)} if n else set()
    return not n or tuple([*words, word][-n:]) not in grams or len(words) + 1 < n


def reference_search(models, source, config, prefix=()):
    """Return the best hypotheses of one sentence as (score, log-prob, words, finished), one word at a time."""
    width = config.beam_size
    limit = int(config.max_ratio * len(source)) + config.extra if config.max_length is None else config.max_length
    limit = max(limit, config.min_length + 1, len(prefix) + 1)
    beams, ended = [(np.float32(0), [])], []
    for step in range(limit):
        candidates = []
        for number, (score, words) in enumerate(beams):
            log_probs = next_log_probs(models, source, words, config.repetition_penalty)
            if step < len(prefix):
                choice = [prefix[step]]
            else:
                choice = [w for w in range(len(log_probs)) if allowed(w, words, config, len(log_probs))]
                choice = choice or [EOS]
            candidates += [(-(score + log_probs[word]), number, word) for word in choice]
        candidates = sorted(candidates)[: 2 * width]
        coming = []
        for rank, (cost, number, word) in enumerate(candidates):
            words = beams[number][1] + [word]
            if rank < width and (word == EOS or step + 1 == limit):
                ended.append((-cost / (step + 1) ** config.length_penalty, -cost, words, word == EOS))
            if word != EOS and len(coming) < width:
                coming.append((-cost, words))
        beams = coming
        if len(ended) >= width or not beams:
            break
    ended.sort(key=lambda hypothesis: -hypothesis[0])
    return ended[: config.num_hypotheses]


def assert_same(found, expected):
    assert [h.ids for h in found] == [words[:-1] if done else words for _, _, words, done in expected]
    assert [h.finished for h in found] == [done for _, _, _, done in expected]
    np.testing.assert_allclose([h.score for h in found], [e[0] for e in expected], rtol=0, atol=2e-5)
    np.testing.assert_allclose([h.log_prob for h in found], [e[1] for e in expected], rtol=0, atol=2e-5)


SETTINGS = [
    {"beam_size": 2},
    {"beam_size": 3, "num_hypotheses": 3, "length_penalty": 0.0},
    {"beam_size": 5, "num_hypotheses": 4, "length_penalty": 0.6, "max_ratio": 0.5, "extra": 2},
    {"beam_size": 5, "num_hypotheses": 5, "length_penalty": 1.7, "min_length": 4},
    {"beam_size": 3, "no_repeat_ngram_size": 1},
    {"beam_size": 3, "num_hypotheses": 3, "no_repeat_ngram_size": 2, "min_length": 8, "max_length": 12},
    {"beam_size": 5, "no_repeat_ngram_size": 3, "repetition_penalty": 0.7, "min_length": 6},
    {"beam_size": 5, "num_hypotheses": 2, "repetition_penalty": 1.4},
    {"beam_size": 4, "num_hypotheses": 4, "n_words": 7, "max_length": 5},
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize(("n_models", "coarse"), [(1, False), (1, True), (3, False)])
def test_equals_the_reference(make_model, make_sources, pad, options, n_models, coarse):
    config = SearchConfig(**options)
    models = [make_model(seed, coarse=coarse) for seed in range(n_models)]
    sources = make_sources(1, 6)
    found = search(models, Sources(*pad(sources)), config)
    for hypotheses, source in zip(found, sources, strict=True):
        assert_same(hypotheses, reference_search(models, source, config))


@pytest.mark.parametrize("vocab_size", [129, 192, 200])
@pytest.mark.parametrize("coarse", [False, True])
def test_equals_the_reference_where_words_come_in_groups(make_model, make_sources, pad, vocab_size, coarse):
    config = SearchConfig(beam_size=4, num_hypotheses=4, max_length=7)
    models, sources = [make_model(3, vocab_size, coarse=coarse)], make_sources(2, 4)
    found = search(models, Sources(*pad(sources)), config)
    for hypotheses, source in zip(found, sources, strict=True):
        assert_same(hypotheses, reference_search(models, source, config))


@pytest.mark.parametrize("options", [{}, {"length_penalty": 0.0, "min_length": 4}, {"no_repeat_ngram_size": 2}])
def test_ragged_prefixes_equal_the_reference(make_model, make_sources, pad, options):
    config = SearchConfig(beam_size=3, num_hypotheses=3, **options)
    models, sources = [make_model(4)], make_sources(3, 9)
    prefixes = [[5, 3, 5, 3, 5, 3][: i % 7] for i in range(9)]
    for rows in (prefixes, [[4, *row] for row in prefixes]):
        found = search(models, Sources(*pad(sources), pad(rows)[0]), config)
        for hypotheses, source, prefix in zip(found, sources, rows, strict=True):
            assert_same(hypotheses, reference_search(models, source, config, prefix))
            assert all(h.ids[: len(prefix)] == prefix for h in hypotheses)


def test_a_limit_below_the_prefix_leaves_one_step(make_model, pad):
    config = SearchConfig(beam_size=2, num_hypotheses=2, max_length=2)
    found = search([make_model()], Sources(*pad([[7, 8]]), torch.tensor([[5, 6, 7, 8]])), config)
    assert all(h.ids[:4] == [5, 6, 7, 8] and len(h.ids) <= 5 for h in found[0])


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("min_length", [0, 2])
@pytest.mark.parametrize("prefix", [(), (4, 3)])
def test_full_width_equals_enumeration(make_model, pad, alpha, min_length, prefix):
    """With more beams than sequences nothing is lost: words 3, 4 and 5, at most 4 tokens."""
    config = SearchConfig(
        beam_size=300, num_hypotheses=300, length_penalty=alpha, min_length=min_length, max_length=4, n_words=6
    )
    models, source = [make_model(7)], [11, 12, 13]
    everything = []
    for n_words in range(5):
        for words in itertools.product((3, 4, 5), repeat=n_words):
            tokens = [*words, EOS] if n_words < 4 else [*words]
            if words[: len(prefix)] == prefix and (tokens[-1] != EOS or n_words >= min_length):
                steps = (next_log_probs(models, source, tokens[:i])[token] for i, token in enumerate(tokens))
                log_prob = math.fsum(steps)
                everything.append((log_prob / len(tokens) ** alpha, log_prob, tokens, tokens[-1] == EOS))
    everything.sort(key=lambda e: -e[0])
    given = torch.tensor([prefix]) if prefix else None
    assert_same(search(models, Sources(*pad([source]), given), config)[0], everything)


def test_one_beam_is_greedy(make_model, make_sources, pad):
    config = SearchConfig(beam_size=1, repetition_penalty=1.2, no_repeat_ngram_size=3)
    models, (src, mask) = [make_model(5, 150)], pad(make_sources(4, 20))
    batch = make_batch(Sources(src, mask), config)
    history = SearchHistory(batch, record=False)
    states = [model.start(src, mask, 1, max(batch.limits)) for model in models]
    n_words = beam_search(Ensemble(models, states), batch, config, history)
    assert history.hypotheses(config, n_words, record=False) == search(models, Sources(src, mask), config)


def test_rows_that_differ_in_length_end_at_their_own_limits(make_model, pad):
    model = make_model(8)
    model.weight[EOS] = 0
    model.features[:, 0] = 50.0
    model.weight[EOS, 0] = -1  # never likely: every sentence runs to its limit
    sources = [[5] * length for length in (1, 4, 9)]
    for config in (SearchConfig(max_ratio=1.5, extra=2), SearchConfig(beam_size=1, max_ratio=1.5, extra=2)):
        found = search([model], Sources(*pad(sources)), config)
        assert [len(h[0].ids) for h in found] == [3, 8, 15]
        assert not any(h[0].finished for h in found)
