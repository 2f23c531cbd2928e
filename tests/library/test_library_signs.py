"""Signs, scores of tokens and suppressed words in the library's results."""

from __future__ import annotations

from pathlib import Path

import pytest

import attnkit


def test_translations_have_signs_and_scores_of_tokens(trained: Path) -> None:
    translator = attnkit.Translator.load(trained, device="cpu")
    usual, unlike, blank = translator.translate(["1 2 3 4", "Ein Hund", ""], token_scores=True, num_hypotheses=2)
    assert "unlike" in unlike.signs and "unlike" not in usual.signs and blank.signs == []
    for found in (usual, unlike, *usual.alternatives):
        assert found.token_scores is not None
        assert [token for token, _ in found.token_scores if token != "</s>"] == found.tokens
        assert sum(score for _, score in found.token_scores) == pytest.approx(found.log_prob, abs=1e-4)
    assert blank.token_scores == []
    (plain,) = translator.translate(["1 2 3 4"])
    assert plain.token_scores is None and "token_scores" not in plain.to_dict()
    (score,) = translator.score(["1 2"], ["2 1"])
    assert sum(score.log_probs[0]) == pytest.approx(score.log_prob, abs=1e-6)


def test_suppressed_words_hold_for_one_call(trained: Path) -> None:
    translator = attnkit.Translator.load(trained, device="cpu")
    lines = ["1 2 3 4", "5 6"]
    plain = [one.text for one in translator.translate(lines, max_length=8)]
    characters = {character for text in plain for character in text if not character.isspace()} - {"\ufffd"}
    found = translator.translate(lines, suppress=sorted(characters), no_unk=True, max_length=8)
    assert not characters & set("".join(one.text for one in found))
    assert [one.text for one in translator.translate(lines, max_length=8)] == plain
