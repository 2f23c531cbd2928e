"""Searches that continue with a text: rules look back at the text before, and words are reported as they come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constraints import Constraints, Sources, make_batch
from attnkit.decoding.search import search
from attnkit.protocols import EOS_ID

BEFORE = torch.tensor([[5, 6, 7], [8, 8, 5]])


def rules_of(**options: Any) -> Constraints:
    config = SearchConfig(beam_size=1, max_length=4, **options)
    return Constraints(config, make_batch(Sources(torch.ones(2, 1), context_ids=BEFORE), config))


def test_a_word_that_stands_before_is_a_repetition() -> None:
    logits = torch.tensor([1.0, 2, 3, 4, 5, -6, 7, -8, 9, -10]).repeat(2, 1, 1)
    expected = logits.clone()
    expected[0, 0, [5, 6, 7]] = torch.tensor([-12.0, 3.5, -16.0])
    expected[1, 0, [5, 8]] = torch.tensor([-12.0, 4.5])
    assert torch.equal(rules_of(repetition_penalty=2.0).apply_repetition_penalty(logits), expected)


def test_ngrams_reach_back_before_the_first_step() -> None:
    scores = torch.zeros(2, 1, 10)
    rules_of(no_repeat_ngram_size=2).mask_scores(scores, 0)
    assert (scores[:, 0] == -torch.inf).nonzero().tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    rules = rules_of(no_repeat_ngram_size=2)
    rules.advance(None, torch.tensor([[5], [8]]))
    rules.mask_scores(scores := torch.zeros(2, 1, 10), 1)
    assert (scores[:, 0, 2:] == -torch.inf).nonzero().tolist() == [[0, 4], [1, 3], [1, 6]]  # 5 6; 8 8 and 8 5


def test_words_before_go_with_their_sentences_and_with_no_shortlist() -> None:
    with pytest.raises(ValueError, match="one row per sentence"):
        make_batch(Sources(torch.ones(3, 1), context_ids=BEFORE), SearchConfig())
    with pytest.raises(ValueError, match="combined with a shortlist"):
        make_batch(
            Sources(torch.ones(2, 1), context_ids=BEFORE, allowed=[np.arange(9, dtype=np.int32)] * 2), SearchConfig()
        )
    rules = rules_of(repetition_penalty=2.0)
    rules.select_rows(torch.tensor([1]))
    assert rules.words is not None and rules.words.tolist() == [[[8, 8, 5]]]


@pytest.mark.parametrize("options", [{}, {"sampling": True}, {"sampling": True, "num_hypotheses": 3}])
def test_what_is_told_is_what_is_found(make_model: Any, make_sources: Any, pad: Any, options: dict[str, Any]) -> None:
    heard: dict[int, list[list[int]]] = {}

    def told(sentences: torch.Tensor, words: torch.Tensor) -> None:
        for sentence, own in zip(sentences.tolist(), words.tolist(), strict=True):
            heard.setdefault(sentence, []).append(own)

    sources = Sources(*pad(make_sources(3, 7)))
    config = SearchConfig(beam_size=1, max_length=12, **options)
    found = search([make_model()], sources, config, on_step=told)
    assert found == search([make_model()], sources, config)
    assert {len(each) for hypotheses in found for each in [h.ids for h in hypotheses]} != {12}, "some have to end early"
    for sentence, hypotheses in enumerate(found):
        for number, hypothesis in enumerate(hypotheses):
            words = [step[number] for step in heard[sentence]]
            assert words[: len(hypothesis.ids)] == hypothesis.ids
            assert set(words[len(hypothesis.ids) :]) <= {EOS_ID}


def test_beams_tell_nothing(make_model: Any) -> None:
    with pytest.raises(ValueError, match="without beams"):
        search([make_model()], Sources(torch.ones(1, 1)), SearchConfig(beam_size=2), on_step=lambda *step: None)
