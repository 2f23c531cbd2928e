"""What holds for every way of searching: batches change nothing, attention follows words, wrong input is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Sources, search
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, SPECIALS, UNK_ID

WAYS = {
    "beam": {"beam_size": 5, "num_hypotheses": 3},
    "beam with rules": {"beam_size": 4, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "coverage_penalty": 0.2},
    "greedy": {"beam_size": 1},
    "greedy with rules": {"beam_size": 1, "no_repeat_ngram_size": 2, "min_length": 5},
    "samples": {"sampling": True, "num_hypotheses": 3, "temperature": 1.3},
    "samples of few words": {"sampling": True, "top_k": 9, "top_p": 0.8, "no_repeat_ngram_size": 1},
}


def plain(found):
    return [[(h.ids, h.score, h.log_prob, h.finished) for h in hypotheses] for hypotheses in found]


@pytest.mark.sample(2)
@pytest.mark.parametrize("way", WAYS)
def test_batch_size_and_order_change_nothing(make_model, make_sources, pad, way):
    config = SearchConfig(**WAYS[way])
    models = [make_model(seed, 140) for seed in range(2 if way == "beam" else 1)]
    sources, keys = make_sources(5, 70), list(range(1000, 1070))
    prefixes = [[6, 9, 30][: i % 4] for i in range(70)]

    def run(order, size):
        found = {}
        for begin in range(0, len(order), size):
            chosen = order[begin : begin + size]
            given = pad([prefixes[i] or [0] for i in chosen])[0]
            batch = pad([sources[i] for i in chosen])
            results = search(models, Sources(*batch, given, [keys[i] for i in chosen]), config)
            found |= dict(zip(chosen, plain(results), strict=True))
        return [found[i] for i in range(len(order))]

    whole = run(list(range(70)), 64)
    shuffled = torch.randperm(70, generator=torch.Generator().manual_seed(0)).tolist()
    assert run(list(range(70)), 7) == whole
    assert run(shuffled, 64) == whole
    assert run(list(range(70)), 1) == whole


@pytest.mark.parametrize("way", WAYS)
def test_attention_follows_its_words(make_model, make_sources, pad, way):
    """The weights of each hypothesis are those of a run over its words alone, its log-probability too."""
    config = SearchConfig(**WAYS[way] | {"repetition_penalty": 1.0})
    model, sources = make_model(2, 30), make_sources(6, 20)
    src, mask = pad(sources)
    for source, hypotheses in zip(sources, search([model], Sources(src, mask), config, record=True), strict=True):
        for hypothesis in hypotheses:
            state = model.start(torch.tensor([source]), None, 1, 100, record=True)
            rows, log_prob, prev = [], 0.0, 1
            for word in hypothesis.ids + [2] * hypothesis.finished:
                hidden, state = model.step(torch.tensor([[prev]]), state)
                log_prob += float(model.head(hidden).log_softmax(-1)[0, 0, word])
                rows.append(state.attention[0, 0])
                prev = word
            assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-4)
            assert hypothesis.attention.shape == (len(hypothesis.ids), len(source))
            for row, expected in zip(hypothesis.attention, rows, strict=False):
                assert np.array_equal(row, expected.numpy())


def test_greedy_takes_the_likeliest_word(make_model, make_sources, pad):
    model, sources = make_model(9, 200, coarse=True), make_sources(7, 30)
    found = search([model], Sources(*pad(sources)), SearchConfig(beam_size=1, max_ratio=1.0, extra=3))
    for source, (hypothesis,) in zip(sources, found, strict=True):
        state, prev, words, log_prob = model.start(torch.tensor([source]), None, 1, 99), 1, [], 0.0
        while len(words) < len(source) + 3 and prev != 2:
            hidden, state = model.step(torch.tensor([[prev]]), state)
            log_probs = model.head(hidden)[0, 0].log_softmax(-1).tolist()
            prev = max(range(2, 200), key=lambda word: (log_probs[word], -word))
            log_prob += log_probs[prev]
            words += [prev]
        assert hypothesis.ids == [word for word in words if word != 2]
        assert hypothesis.finished == (words[-1] == 2)
        assert hypothesis.log_prob == pytest.approx(log_prob, abs=1e-4)
        assert hypothesis.score == pytest.approx(log_prob / len(words), abs=1e-4)


def test_greedy_without_scores_gives_the_same_words(make_model, make_sources, pad):
    src, mask = pad(make_sources(8, 40))
    with_scores = search([make_model(1, 300)], Sources(src, mask), SearchConfig(beam_size=1))
    without = search([make_model(1, 300)], Sources(src, mask), SearchConfig(beam_size=1, scores=False))
    assert [h[0].ids for h in without] == [h[0].ids for h in with_scores]
    assert all(math.isnan(h[0].score) for h in without)


def test_a_model_alone_equals_an_ensemble_of_itself(make_model, make_sources, pad):
    src, mask = pad(make_sources(9, 20))
    for options in (WAYS["beam with rules"], WAYS["greedy"], WAYS["samples"]):
        config = SearchConfig(**options)
        one = search([make_model(3)], Sources(src, mask), config, record=True)
        two = search([make_model(3), make_model(3)], Sources(src, mask), config, record=True)
        assert [[h.ids for h in each] for each in one] == [[h.ids for h in each] for each in two]
        assert one[0][0].score == pytest.approx(two[0][0].score, abs=1e-5)
        assert np.allclose(one[0][0].attention, two[0][0].attention)


class Broken(torch.nn.Module):
    """A model whose numbers have gone."""

    def __init__(self, model):
        super().__init__()
        self.start, self.step, self.inner = model.start, model.step, model

    def head(self, hidden, ids=None):
        return self.inner.head(hidden, ids) * torch.nan


@pytest.mark.parametrize("way", ["beam", "greedy", "samples of few words", "samples"])
def test_a_model_without_numbers_still_ends(make_model, pad, way):
    found = search([Broken(make_model(0, 300))], Sources(*pad([[5, 6], [7]])), SearchConfig(**WAYS[way]))
    assert len(found) == 2
    assert all(found)


def test_nothing_in_nothing_out(make_model):
    assert search([make_model()], Sources(torch.zeros(0, 3, dtype=torch.long)), SearchConfig()) == []


def test_wrong_input_is_refused(make_model, pad):
    src, mask = pad([[5, 6], [7]])
    with pytest.raises(ValueError, match="at least one model"):
        search([], Sources(src, mask), SearchConfig())
    with pytest.raises(ValueError, match="3 keys for 2 sentences"):
        search([make_model()], Sources(src, mask, keys=[1, 2, 3]), SearchConfig())
    with pytest.raises(ValueError, match="one row per sentence"):
        search([make_model()], Sources(src, mask, torch.tensor([[5]])), SearchConfig())
    for rows in ([[0, 5], [6, 7]], [[5, 2], [6, 7]], [[1, 5], [6, 7]]):
        with pytest.raises(ValueError, match="a prefix must contain only words"):
            search([make_model()], Sources(src, mask, torch.tensor(rows)), SearchConfig())
    with pytest.raises(ValueError, match="share their target vocabulary"):
        search([make_model(0, 9), make_model(0, 10)], Sources(src, mask), SearchConfig())


def test_attention_that_a_model_lacks_is_refused(make_model, pad):
    class Blind(Broken):
        def step(self, prev, state):
            hidden, state = self.inner.step(prev, state)
            return hidden, state.__class__(**{**vars(state), "attention": None})

    model = make_model()
    blind = Blind(model)
    blind.step = Blind.step.__get__(blind)
    for config, record in ((SearchConfig(), True), (SearchConfig(coverage_penalty=0.1), False)):
        with pytest.raises(ValueError, match="attention"):
            search([blind], Sources(*pad([[5, 6]])), config, record=record)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 2, "num_hypotheses": 3}, "cannot exceed beam_size"),
        ({"top_k": 5}, r"need sampling \(--sampling\)"),
        ({"min_length": 9, "max_length": 9}, "min_length must be below max_length"),
        ({"beam_size": 0}, "greater than or equal to 1"),
        ({"temperature": 0.0, "sampling": True}, "greater than 0"),
        ({"beam": 3}, "Extra inputs are not permitted"),
        ({"beam_size": "5"}, "valid integer"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValidationError, match=message):
        SearchConfig(**options)


def test_the_special_ids_are_the_tokenizers_first():
    assert [SPECIALS[i] for i in (PAD_ID, BOS_ID, EOS_ID, UNK_ID)] == ["<pad>", "<s>", "</s>", "<unk>"]
