"""Sentences that are stopped end at their next step, and the others are none the wiser."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import RequiredTerms
from attnkit.decoding.required_terms import RequiredTerm
from attnkit.decoding.search import Sources, search
from attnkit.decoding.stopping import StopFlags

WAYS = {
    "beam": {"beam_size": 5, "num_hypotheses": 3},
    "beam with rules": {"beam_size": 4, "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "coverage_penalty": 0.2},
    "greedy": {"beam_size": 1, "token_scores": True},
    "samples": {"sampling": True, "num_hypotheses": 3, "temperature": 1.3},
    "terms": {"beam_size": 3},
}
N, LONG = 12, 60  #: sentences, and the least words of a translation


def plain(found):
    return [[(h.ids, h.score, h.log_prob, h.finished, h.token_scores) for h in hypotheses] for hypotheses in found]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("at", [0, 1, 7])
def test_stopped_sentences_end_and_the_others_do_not_change(make_model, make_sources, pad, way, at):
    config = SearchConfig(**WAYS[way], min_length=LONG, max_length=LONG + 9)
    batch, flags, calls = pad(make_sources(5, N)), StopFlags(N), 0
    required = None
    if way == "terms":
        terms = [[RequiredTerm(((7, 9),), ((7, 9),))] for _ in range(N)]
        required = RequiredTerms(terms, torch.zeros(40, dtype=torch.bool))
    check = flags.check(range(N))

    def stops():
        nonlocal calls
        if calls == at:
            for number in range(0, N, 2):
                flags.set(number)
        calls += 1
        return check()

    def run(stops=None):
        return search([make_model(3, 40)], Sources(*batch, required=required, stops=stops), config)

    expected, found = plain(run()), plain(run(stops))
    assert calls > LONG, "asked at every step"
    assert found[1::2] == expected[1::2]
    assert all(len(ids) == at + 1 and not finished for own in found[::2] for ids, _, _, finished, _ in own)
    assert all(len(own) >= 1 for own in found)


@pytest.mark.parametrize("way", WAYS)
def test_a_search_ends_when_all_its_sentences_are_stopped(make_model, make_sources, pad, way):
    n_calls = 0

    def stops():
        nonlocal n_calls
        n_calls += 1
        return np.full(N, n_calls == 4)

    config = SearchConfig(**WAYS[way], min_length=LONG)
    search([make_model(3, 40)], Sources(*pad(make_sources(5, N)), stops=stops), config)
    assert n_calls == 4


def test_one_flag_is_for_all_lines_or_each_line_has_its_own():
    flags = StopFlags(3)
    check, second = flags.check([2, 1, 1]), flags.one(1).check([0, 8, 9])
    assert not check().any() and not second().any()
    flags.set(1)
    assert check().tolist() == [False, True, True] and second().all()
    flags.set_all()
    assert check().all()
