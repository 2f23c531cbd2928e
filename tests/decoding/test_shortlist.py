"""Search over a few words of the vocabulary: each sentence has its own, whatever its batch mates have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnkit.decoding import ensemble
from attnkit.decoding.beam import BeamTrace
from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Sources, search

V = 140
WAYS = {
    "beam": {"beam_size": 5, "num_hypotheses": 3},
    "beam with rules": {"beam_size": 4, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "coverage_penalty": 0.2},
    "greedy": {"beam_size": 1},
    "greedy with rules": {"beam_size": 1, "no_repeat_ngram_size": 2, "min_length": 5},
    "greedy without scores": {"beam_size": 1, "scores": False},
    "samples": {"sampling": True, "num_hypotheses": 3, "temperature": 1.3},
    "samples of few words": {"sampling": True, "top_k": 9, "top_p": 0.8, "no_repeat_ngram_size": 1},
}


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    """Round so little up that the words of these small vocabularies stay few."""
    monkeypatch.setattr(ensemble, "ROUND", 8)


def test_the_words_of_a_batch_are_those_of_its_sentences_and_a_few_more():
    own = [np.array(ids, np.int64) for ids in ([2, 9, 50], [2, 3, 9], [2], [2, 139])]
    short = ensemble.BatchShortlist(own, torch.device("cpu"))
    assert short.words.tolist() == [0, 1, 2, 3, 4, 9, 50, 139]  # 4 was let in to make it eight
    logits = short.mask_unlisted(torch.zeros(4, 2, 8))
    for row, ids in zip(logits, own, strict=True):
        assert [short.words[row[k] == 0].tolist() for k in (0, 1)] == [ids.tolist()] * 2


def plain(found):
    return [[(h.ids, h.score, h.log_prob, h.finished) for h in hypotheses] for hypotheses in found]


def lists(n, seed=1, most=30):
    """Return the words of each sentence: a few of the vocabulary, of different number, one sentence with none."""
    rng = np.random.default_rng(seed)
    sizes = [0, *rng.integers(1, most, n - 1)]
    return [np.sort(rng.choice(np.arange(3, V), size, replace=False)).astype(np.int32) for size in sizes]


class Barred(torch.nn.Module):
    """The model for one sentence alone, over the whole vocabulary: what it may not use has the logit -inf."""

    def __init__(self, model, allowed):
        super().__init__()
        self.start, self.step, self.inner = model.start, model.step, model
        self.barred = torch.ones(V, dtype=torch.bool)
        self.barred[[2, *allowed]] = False

    def head(self, hidden, ids=None):
        assert ids is None
        return self.inner.head(hidden).masked_fill(self.barred, -torch.inf)


def close(one, other):
    assert [[h[0] for h in each] for each in one] == [[h[0] for h in each] for each in other]
    assert [[h[3] for h in each] for each in one] == [[h[3] for h in each] for each in other]
    for left, right in zip(one, other, strict=True):
        for a, b in zip(left, right, strict=True):
            assert a[1:3] == pytest.approx(b[1:3], abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_models", [1, 2])
def test_equals_a_model_that_knows_no_other_words(make_model, make_sources, pad, way, n_models):
    config = SearchConfig(**WAYS[way], n_words=V - 3)
    models = [make_model(seed, V) for seed in range(n_models)]
    sources, allowed = make_sources(5, 16), lists(16)
    prefixes = [[6, 9, 30][: i % 4] for i in range(16)]
    found = search(
        models, Sources(*pad(sources), pad([p or [0] for p in prefixes])[0], list(range(16)), allowed), config
    )
    for i, source in enumerate(sources):
        usable = [*allowed[i], *prefixes[i]]
        barred = [Barred(model, usable) for model in models]
        given = torch.tensor([prefixes[i]]) if prefixes[i] else None
        alone = search(barred, Sources(torch.tensor([source]), None, given, [i]), config)
        close(plain(found[i : i + 1]), plain(alone))
        for hypothesis in found[i]:
            assert set(hypothesis.ids) <= set(usable) & set(range(V - 3))
            assert hypothesis.ids[: len(prefixes[i])] == prefixes[i]
    assert len({tuple(each[0].ids) for each in found}) > 10


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", WAYS)
def test_batch_size_and_order_change_nothing(make_model, make_sources, pad, way):
    config = SearchConfig(**WAYS[way])
    models = [make_model(seed, V) for seed in range(2 if way == "beam" else 1)]
    sources, allowed = make_sources(6, 30), lists(30, 2)
    prefixes = [[6, 9, 30][: i % 3] for i in range(30)]

    def run(order, size):
        found = {}
        for begin in range(0, len(order), size):
            chosen = order[begin : begin + size]
            given = pad([prefixes[i] or [0] for i in chosen])[0]
            batch = Sources(*pad([sources[i] for i in chosen]), given, chosen, [allowed[i] for i in chosen])
            found |= dict(zip(chosen, plain(search(models, batch, config)), strict=True))
        return [found[i] for i in range(len(order))]

    whole = run(list(range(30)), 32)
    for size in (1, 7):
        close(run(list(range(30)), size), whole)
    close(run(torch.randperm(30, generator=torch.Generator().manual_seed(0)).tolist(), 16), whole)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("coarse", [False, True])
def test_all_words_change_nothing(make_model, make_sources, pad, way, coarse):
    """With logits that tie (coarse) too: the order of words is that of the vocabulary."""
    config = SearchConfig(**WAYS[way], n_words=V - 5)
    model, sources = make_model(3, V, coarse=coarse), make_sources(7, 30)
    src, mask = pad(sources)
    every = [np.arange(V, dtype=np.int32)] * 30
    without = search([model], Sources(src, mask, keys=list(range(30))), config, record=True)
    found = search([model], Sources(src, mask, keys=list(range(30)), allowed=every), config, record=True)
    close(plain(found), plain(without))
    for one, other in zip(found, without, strict=True):
        for left, right in zip(one, other, strict=True):
            assert np.array_equal(left.attention, right.attention)


def test_the_head_is_asked_for_the_union_alone(make_model, make_sources, pad):
    model, sources, asked = make_model(1, V), make_sources(8, 5), []
    head = model.head

    def watched(hidden, ids=None):
        asked.append(ids)
        return head(hidden, ids)

    model.head = watched
    allowed = [np.array(ids) for ids in ([5, 9], [9, 40], [7], [], [100])]
    search([model], Sources(*pad(sources), allowed=allowed), SearchConfig(beam_size=2))
    assert asked and all(ids.tolist() == [0, 1, 2, 5, 7, 9, 40, 100] for ids in asked)
    asked.clear()
    search([model], Sources(*pad(sources)), SearchConfig(beam_size=2))
    assert asked and all(ids is None for ids in asked)


@pytest.mark.parametrize("options", [{"beam_size": 3, "num_hypotheses": 3}, {"beam_size": 1}, {"sampling": True}])
def test_a_sentence_without_words_ends(make_model, pad, options):
    """However long it should be at least; its batch mate has a word, and takes it until it may end."""
    config = SearchConfig(min_length=3, max_length=4, **options)
    src, mask = pad([[5, 6, 7], [8]])
    allowed = [np.array([], np.int32), np.array([9])]
    alone, other = search([make_model(0, V)], Sources(src, mask, allowed=allowed), config)
    assert all(h.ids == [] and h.finished and h.log_prob == pytest.approx(0, abs=1e-6) for h in alone)
    assert all(set(h.ids) == {9} and len(h.ids) >= 3 for h in other)


def test_wrong_shortlists_are_refused(make_model, pad):
    src, mask = pad([[5, 6], [7]])
    with pytest.raises(ValueError, match="1 shortlists for 2 sentences"):
        search([make_model()], Sources(src, mask, allowed=[np.array([5])]), SearchConfig())
    with pytest.raises(ValueError, match="ids must not be negative"):
        search([make_model()], Sources(src, mask, allowed=[np.array([5]), np.array([-1])]), SearchConfig())
    with pytest.raises(ValueError, match="without a shortlist"):
        allowed = [np.array([5]), np.array([6])]
        search([make_model()], Sources(src, mask, allowed=allowed), SearchConfig(), tree=BeamTrace(2))
