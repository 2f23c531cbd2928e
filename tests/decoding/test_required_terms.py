"""Required terms: against a search of the text, against all sequences there are, in any batch."""

from __future__ import annotations

import itertools
import math
import random
import re

import numpy as np
import pytest
import torch

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.constrained_beam import share_beam
from attnkit.decoding.constraints import RequiredTerms, Sources
from attnkit.decoding.required_terms import Progress, RequiredTerm, TermTrie
from attnkit.decoding.search import search

# Every text of these tokens is written in one way: a word is " x" and letters "y".
TOKENS = ["", "", "", " <unk>", " a", " b", "a", "b", " c", "c", ".", " ."]
JOINS = torch.tensor([token[:1].isalpha() for token in TOKENS])
EOS = 2


def next_log_probs(model, source: list[int], words: list[int]) -> np.ndarray:
    """Return log-probabilities (V,) after some words, from a fresh run of the model."""
    state = model.start(torch.tensor([source]), None, 1, len(words) + 1)
    for word in [1, *words]:
        hidden, state = model.step(torch.tensor([[word]]), state)
    return model.head(hidden)[0, 0].float().log_softmax(-1).numpy()


def make_term(*forms: str) -> RequiredTerm:
    """Return a term in the tokens above."""
    ids = tuple(
        tuple(TOKENS.index(token) for word in form.split() for token in [f" {word[0]}", *word[1:]]) for form in forms
    )
    return RequiredTerm(ids, ids, is_word=forms[0][-1].isalpha())


def count(text: str, *forms: str) -> int:
    """Return how often a text has one of the forms as words of their own, without overlaps."""
    longest = sorted(forms, key=len, reverse=True)
    return len(re.findall(rf"(?<=\s)(?:{'|'.join(map(re.escape, longest))})(?![a-z])", text))


def decode(ids: list[int]) -> str:
    return "".join(TOKENS[id] for id in ids)


def draw_terms(draw: random.Random) -> list[tuple[str, ...]]:
    words = ["".join(draw.choices("abc", k=draw.randint(1, 3))) for _ in range(6)]
    return [
        tuple(dict.fromkeys(" ".join(draw.choices(words, k=draw.choice([1, 1, 2]))) for _ in range(draw.randint(1, 2))))
        for _ in range(draw.randint(1, 3))
    ]


def test_progress_equals_a_search_of_the_text() -> None:
    """For one term, whose forms do not begin within each other: whether it is there, after every token."""
    n_met = 0
    for seed in range(300):
        draw = random.Random(seed)
        forms = draw.choice([("ab",), ("a", "abc"), ("a b",), ("c", "cc"), ("ab c", "ab")])
        trie, text, ids = TermTrie([make_term(*forms)]), Progress(), []
        for step in range(10):
            choice = [*range(4, len(TOKENS)), *trie.following(text, at_begin=step == 0)]
            id = draw.choice([choice[-1], draw.choice(choice)] if step else [4, 5, 8])
            text = trie.after(text, id, at_begin=step == 0, joins=bool(JOINS[id]))
            ids.append(id)
            assert trie.has_all(text) == (count(decode(ids), *forms) > 0) == (trie.n_done(text) == trie.n_tokens)
            n_met += trie.has_all(text)
    assert 500 < n_met < 2900


def test_a_repeated_term_must_be_there_as_often() -> None:
    trie, text = TermTrie([make_term("ab"), make_term("ab")]), Progress()
    for number, id in enumerate([4, 7, 4, 7]):
        assert not trie.has_all(text) and trie.n_done(text) == number
        assert list(trie.following(text, at_begin=number == 0)) == [id]
        text = trie.after(text, id, at_begin=number == 0, joins=bool(JOINS[id]))
    assert trie.has_all(text) and not list(trie.following(text, at_begin=False))


def test_a_letter_makes_another_word() -> None:
    trie = TermTrie([make_term("ab")])
    text = Progress()
    for step, id in enumerate([4, 7]):
        text = trie.after(text, id, at_begin=step == 0, joins=bool(JOINS[id]))
    assert trie.has_all(text) and trie.must_end_word(text)
    assert not trie.has_all(trie.after(text, 6, at_begin=False, joins=True))
    assert trie.has_all(trie.after(text, 10, at_begin=False, joins=False))


def test_banks_take_turns() -> None:
    assert share_beam({0: 9, 2: 9, 1: 1}, 6) == {2: 3, 1: 1, 0: 2}
    assert share_beam({0: 9, 2: 9, 1: 1}, 2) == {2: 1, 1: 1, 0: 0}
    assert share_beam({0: 2, 1: 1}, 6) == {1: 1, 0: 2}
    assert share_beam({}, 6) == {}


@pytest.mark.sample(20)
@pytest.mark.parametrize("seed", range(100))
def test_every_translation_has_its_terms_in_any_batch(make_model, make_sources, pad, seed) -> None:
    draw = random.Random(seed)
    drawn = [draw_terms(draw) for _ in range(5)]
    terms = [[make_term(*forms) for forms in own] for own in drawn]
    options = draw.choice([{"beam_size": 1}, {"beam_size": 3, "num_hypotheses": 3}, {"beam_size": 5, "min_length": 3}])
    config = SearchConfig(**options, max_length=draw.choice([None, 6]), token_scores=True)
    models = [make_model(seed + k, len(TOKENS), coarse=seed % 5 == 0) for k in range(1 + seed % 2)]
    rows = make_sources(seed, 5)
    found = search(models, Sources(*pad(rows), required=RequiredTerms(terms, JOINS)), config)
    for hypotheses, own, sentence, row in zip(found, drawn, terms, rows, strict=True):
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
        for hypothesis in hypotheses:
            text = decode(hypothesis.ids)
            for forms in own:
                assert count(text, *forms), (text, own)
            assert math.isclose(sum(hypothesis.token_scores), hypothesis.log_prob, rel_tol=1e-5)
        alone = search(models, Sources(*pad([row]), required=RequiredTerms([sentence], JOINS)), config)
        assert alone == [hypotheses]
    allowed = [np.arange(len(TOKENS), dtype=np.int32)] * len(rows)
    assert search(models, Sources(*pad(rows), allowed=allowed, required=RequiredTerms(terms, JOINS)), config) == found
    none = [np.array([4, 10], np.int32)] * len(rows)
    for own, hypotheses in zip(
        drawn,
        search(models, Sources(*pad(rows), allowed=none, required=RequiredTerms(terms, JOINS)), config),
        strict=True,
    ):
        assert all(count(decode(hypotheses[0].ids), *forms) for forms in own)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("forms", [[("ab",)], [("a", "abb")], [("b",), ("a",)]])
def test_full_width_equals_enumeration(make_model, pad, alpha, forms) -> None:
    """With more beams than sequences nothing is lost: at most 4 tokens, of words 4 to 7."""
    config = SearchConfig(beam_size=400, num_hypotheses=400, length_penalty=alpha, max_length=4, no_unk=True, n_words=8)
    model, source = make_model(7, len(TOKENS)), [11, 12, 13]
    used = [4, 5, 6, 7]
    everything = []
    for n_words in range(1, 5):
        for words in itertools.product(used, repeat=n_words):
            tokens = [*words, EOS] if n_words < 4 else [*words]
            if all(count(decode([*words]), *own) for own in forms):
                log_prob = math.fsum(next_log_probs(model, source, tokens[:i])[t] for i, t in enumerate(tokens))
                everything.append((log_prob / len(tokens) ** alpha, tokens))
    everything.sort(key=lambda e: -e[0])
    required = RequiredTerms([[make_term(*own) for own in forms]], JOINS)
    found = search([model], Sources(*pad([source]), required=required), config)[0]
    assert [h.ids + [EOS] * h.finished for h in found] == [tokens for _, tokens in everything]
    np.testing.assert_allclose([h.score for h in found], [score for score, _ in everything], atol=2e-5)


def test_a_prefix_counts(make_model, make_sources, pad) -> None:
    config = SearchConfig(beam_size=4, max_length=8)
    model, rows = make_model(5, len(TOKENS)), make_sources(4, 12)
    prefix = torch.tensor([[4, 7]] * len(rows))
    required = RequiredTerms([[make_term("ab")]] * len(rows), JOINS)
    found = search([model], Sources(*pad(rows), prefix, required=required), config)
    for hypotheses in found:
        assert hypotheses[0].ids[:2] == [4, 7] and count(decode(hypotheses[0].ids), "ab")


def test_what_terms_cannot_be_combined_with(make_model, pad) -> None:
    required = RequiredTerms([[make_term("ab")]], JOINS)
    src = pad([[5, 6]])
    with pytest.raises(ValueError, match="beam search"):
        search([make_model(0, len(TOKENS))], Sources(*src, required=required), SearchConfig(sampling=True))
    with pytest.raises(ValueError, match="1 sentences for 2"):
        search([make_model(0, len(TOKENS))], Sources(*pad([[5], [6]]), required=required), SearchConfig())
