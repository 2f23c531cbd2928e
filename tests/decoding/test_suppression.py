"""Suppressed phrases against a search of the whole text, in random vocabularies."""

from __future__ import annotations

import random
import re
import unicodedata

import numpy as np
import pytest
import torch

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.search import Sources, search
from attnkit.decoding.suppression import SuppressedPhrases
from attnkit.text import word_boundaries

SPECIALS = [b"", b"", b"", b" <unk>"]


def joins(before: str, after: str) -> bool:
    """Return whether two characters belong to one word; Chinese letters end one anywhere."""
    return all(
        (c.isalnum() or unicodedata.category(c)[0] == "M") and not "\u4e00" <= c <= "\u9fff" for c in before + after
    )


def completes(text: str, token: str, phrase: str) -> bool:
    """Return whether a token completes a phrase between boundaries of words: by trying all places."""
    whole = text + token
    for begin in range(len(whole)):
        end = begin + len(phrase)
        if whole[begin:end] != phrase or end <= len(text):
            continue
        begins = begin == 0 or not joins(whole[begin - 1], whole[begin])
        if begins and (end == len(whole) or not joins(whole[end - 1], whole[end])):
            return True
    return False


@pytest.mark.parametrize("alphabet", ["ab ", "ab-", "aé ", "a冰球"])
def test_a_token_is_forbidden_if_it_completes_a_phrase(alphabet: str) -> None:
    draw, n_forbidden = random.Random(alphabet), 0
    for _ in range(60):
        tokens = sorted({"".join(draw.choices(alphabet, k=draw.choice([1, 1, 2, 3, 5]))) for _ in range(12)})
        phrases = ["".join(draw.choices(alphabet, k=draw.randint(1, 5))).strip() for _ in range(draw.randint(1, 4))]
        phrases = [phrase for phrase in phrases if phrase]
        rules = SuppressedPhrases(phrases, [token.encode() for token in tokens], joins=word_boundaries.joins)
        text, state = "", rules.first
        for _ in range(12):
            expected = [any(completes(text, token, phrase) for phrase in phrases) for token in tokens]
            assert rules.forbidden([state])[0].tolist() == expected, (text, tokens, phrases)
            n_forbidden += sum(expected)
            free = [i for i, is_forbidden in enumerate(expected) if not is_forbidden]
            if not free:
                break
            chosen = draw.choice(free)
            text, state = text + tokens[chosen], rules.after(state, chosen)
    assert n_forbidden > 200


def test_characters_split_into_bytes_are_recognized() -> None:
    """In a vocabulary of bytes, é is two tokens."""
    rules = SuppressedPhrases(["é"], [bytes([byte]) for byte in range(256)], joins=word_boundaries.joins)
    first, second = "é".encode()
    state = rules.after(rules.first, first)
    assert rules.forbidden([rules.first, state]).nonzero().tolist() == [[1, second]]
    inside = rules.after(rules.after(rules.first, ord("x")), first)
    assert not rules.forbidden([inside]).any()


def draw_vocabulary(seed: int, n_words: int) -> list[bytes]:
    draw = random.Random(seed)
    words = {"".join(draw.choices("ab", k=draw.randint(1, 3))) for _ in range(1000)}
    tokens = sorted(words | {f" {word}" for word in words})
    return [*SPECIALS, *(token.encode() for token in draw.sample(tokens, n_words - len(SPECIALS)))]


@pytest.mark.parametrize(
    "options", [{"beam_size": 1}, {"beam_size": 4, "num_hypotheses": 4}, {"sampling": True, "num_hypotheses": 3}]
)
def test_no_search_produces_a_phrase(make_model, make_sources, pad, options) -> None:
    """Phrases of the unrestricted result disappear; others change nothing; a shortlist of all words, neither."""
    tokens = draw_vocabulary(3, 24)
    config = SearchConfig(**options, max_length=12)
    model, (src, mask) = make_model(vocab_size=24), pad(make_sources(12, 20))

    def texts(found) -> list[str]:
        return [b"".join(tokens[id] for id in h.ids).decode() for own in found for h in own]

    plain = search([model], Sources(src, mask), config)
    unheard = SuppressedPhrases(["cc", "b cc"], tokens, joins=word_boundaries.joins)
    assert search([model], Sources(src, mask, suppressed=unheard), config) == plain
    common = max({word for text in texts(plain) for word in text.split()}, key=lambda w: "".join(texts(plain)).count(w))
    rules = SuppressedPhrases([common, "a b"], tokens, joins=word_boundaries.joins)
    assert any(common in text.split() for text in texts(plain))
    found = search([model], Sources(src, mask, suppressed=rules), config)
    for text in texts(found):
        assert common not in text.split() and not re.search(r"(?<!\w)a b(?!\w)", text), text
    allowed = [np.arange(24, dtype=np.int32)] * len(src)
    assert search([model], Sources(src, mask, allowed=allowed, suppressed=rules), config) == found


def test_a_forced_prefix_may_have_a_phrase(make_model, pad) -> None:
    tokens = draw_vocabulary(3, 24)
    rules = SuppressedPhrases([tokens[9].decode().strip()], tokens, joins=word_boundaries.joins)
    for config in (SearchConfig(beam_size=3, max_length=6), SearchConfig(beam_size=1, max_length=6)):
        sources = Sources(*pad([[5, 6, 7]]), torch.tensor([[9]]), suppressed=rules)
        (best,) = search([make_model(vocab_size=24)], sources, config)[0]
        assert best.ids[0] == 9 and 9 not in best.ids[1:]


def test_token_scores_add_up_and_do_not_depend_on_the_batch(make_model, make_sources, pad) -> None:
    rows, model = make_sources(9, 20), make_model(vocab_size=24)
    for options in ({"beam_size": 4, "num_hypotheses": 4}, {"beam_size": 1, "scores": False}, {"sampling": True}):
        config = SearchConfig(**options, max_length=10, token_scores=True, length_penalty=0.7)
        found = search([model], Sources(*pad(rows)), config)
        alone = [search([model], Sources(*pad([row])), config)[0] for row in rows]
        for own, other in zip(found, alone, strict=True):
            for one, two in zip(own, other, strict=True):
                assert len(one.token_scores) == len(one.ids) + one.finished
                assert sum(one.token_scores) == pytest.approx(one.log_prob, abs=1e-6)
                assert all(score <= 1e-6 for score in one.token_scores)
                if not config.sampling:
                    assert one.token_scores == pytest.approx(two.token_scores, abs=1e-5)
