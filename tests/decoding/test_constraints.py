"""Each rule against a value worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Constraints, Sources, make_batch
from attnkit.decoding.search import search


def rules_after(words, **options):
    config = SearchConfig(**options)
    rules = Constraints(config, make_batch(Sources(torch.tensor([[7, 8, 9]])), config))
    for word in words:
        rules.advance(torch.zeros(1, 1, dtype=torch.long), torch.tensor([[word]]))
    return rules


def forbidden(rules, step, vocab_size=8):
    scores = torch.zeros(1, 1, vocab_size)
    rules.mask_scores(scores, step)
    return (scores[0, 0] == -torch.inf).nonzero()[:, 0].tolist()


def test_padding_and_begin_never_come():
    assert forbidden(rules_after([]), 0) == [0, 1]
    assert forbidden(rules_after([], n_words=6), 0) == [0, 1, 6, 7]


def test_the_unknown_token_never_comes_if_it_is_excluded():
    assert forbidden(rules_after([], no_unk=True), 0) == [0, 1, 3]


def test_the_end_waits_for_the_least_length():
    rules = rules_after([], min_length=2)
    assert [forbidden(rules, step) for step in range(3)] == [[0, 1, 2], [0, 1, 2], [0, 1]]


def test_no_ngram_comes_twice():
    assert forbidden(rules_after([3, 4, 5, 3], no_repeat_ngram_size=1), 4) == [0, 1, 3, 4, 5]
    assert forbidden(rules_after([3, 4, 5, 3], no_repeat_ngram_size=2), 4) == [0, 1, 4]
    assert forbidden(rules_after([3, 4, 3, 5, 3], no_repeat_ngram_size=2), 5) == [0, 1, 4, 5]
    assert forbidden(rules_after([3, 4, 5, 3], no_repeat_ngram_size=3), 4) == [0, 1]
    assert forbidden(rules_after([3, 4, 5, 6, 3, 4], no_repeat_ngram_size=3), 6) == [0, 1, 5]
    assert forbidden(rules_after([3], no_repeat_ngram_size=4), 1) == [0, 1]


def test_the_least_length_gives_way_where_no_word_is_left():
    rules = rules_after([3, 4], no_repeat_ngram_size=1, min_length=9)
    assert forbidden(rules, 2, vocab_size=6) == [0, 1, 2, 3, 4]
    assert forbidden(rules, 2, vocab_size=5) == [0, 1, 3, 4]


@pytest.mark.parametrize("options", [{"beam_size": 3, "num_hypotheses": 3}, {"beam_size": 1}, {"sampling": True}])
def test_a_search_that_runs_out_of_words_ends(make_model, pad, options):
    config = SearchConfig(no_repeat_ngram_size=1, min_length=20, n_words=6, **options)
    for hypotheses in search([make_model()], Sources(*pad([[5, 6, 7], [8]])), config):
        assert hypotheses
        assert all(sorted(h.ids) == [3, 4, 5] and h.finished for h in hypotheses)


def test_repetition_penalty_is_ctrls():
    rules = rules_after([3, 4, 3], repetition_penalty=2.0)
    logits = torch.tensor([[[1.0, 1, 1, 3, -3, 5, -5]]])
    assert rules.apply_repetition_penalty(logits)[0, 0].tolist() == [1, 1, 1, 1.5, -6, 5, -5]


class Fixed(torch.nn.Module):
    """Always the same distribution and the same attention."""

    def __init__(self, logits, attention):
        super().__init__()
        self.logits, self.looks = torch.tensor(logits), torch.tensor(attention)

    def start(self, src, src_mask, n_beams, max_length, record=False):
        self.attention = self.looks.expand(len(src), 1, -1)
        return self

    def step(self, prev, state):
        self.attention = self.looks.expand(*prev.shape, -1)
        return torch.zeros(*prev.shape, 1), self

    def head(self, hidden, ids=None):
        return self.logits.expand(*hidden.shape[:2], -1).clone()

    def reorder_beams(self, parents):
        return self

    def select_rows(self, sentences):
        return self


@pytest.mark.parametrize("options", [{"beam_size": 2}, {"beam_size": 1}, {"sampling": True, "top_k": 1}])
def test_coverage_penalty_by_hand(options):
    """Two source words and a padded one get (1/4, 3/4) per step: after word 3 and the end (1/2, 3/2).

    So the term is log(1/2) + log(1). Each step has probability 1/2 for the end, as for word 3.
    """
    model = Fixed([-1e9, -1e9, 0.0, 0.0], [0.25, 0.75, 0.0])
    mask = torch.tensor([[True, True, False]])
    config = SearchConfig(coverage_penalty=0.3, min_length=1, max_length=2, **options)
    hypothesis = search([model], Sources(torch.tensor([[5, 2, 0]]), mask), config)[0][0]
    assert hypothesis.ids == [3]
    assert hypothesis.finished
    assert hypothesis.log_prob == pytest.approx(2 * math.log(0.5))
    assert hypothesis.score == pytest.approx(math.log(0.5) + 0.3 * math.log(0.5))
    assert hypothesis.attention is None


def test_coverage_decides_between_hypotheses():
    """Longer translations cover more of three words: without the term the short one wins, with it the long one."""
    model = Fixed([-1e9, -1e9, 0.0, -0.1], [1 / 3, 1 / 3, 1 / 3])
    src = torch.tensor([[5, 6, 2]])
    found = [
        search(
            [model], Sources(src), SearchConfig(beam_size=4, length_penalty=0.0, max_length=4, coverage_penalty=beta)
        )
        for beta in (0.0, 2.0)
    ]
    assert [each[0][0].ids for each in found] == [[], [3, 3]]
