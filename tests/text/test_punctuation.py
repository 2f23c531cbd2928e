"""Separation of punctuation marks from words."""

from __future__ import annotations

import random
import unicodedata

import pytest

from attnkit.text.punctuation import separate_marks, split_words

CASES = {
    "guitar,": ["guitar", ","],
    "(the": ["(", "the"],
    "wait...": ["wait", "..."],
    'end.")': ["end", ".", '"', ")"],
    "¿qué?": ["¿", "qué", "?"],
    "„Haus“": ["„", "Haus", "“"],
    "don't": ["don't"],
    "well-known": ["well-known"],
    "3.14": ["3.14"],
    "'s": ["'s"],
    "'word'": ["'", "word", "'"],
    "C#": ["C#"],
    "C++": ["C++"],
    "<unk>": ["<unk>"],
    "new_york_": ["new_york_"],
    "50%,": ["50%", ","],
    "--": ["--"],
    ":-)": [":-)"],
    "冰球。": ["冰球", "。"],
    "&quot;": ["&quot;"],
    "[UNK]": ["[UNK]"],
    "-LRB-": ["-LRB-"],
    "l'": ["l'"],
    "U.S.": ["U.S."],
    "-5": ["-5"],
}


@pytest.mark.parametrize("word", CASES)
def test_marks_at_the_ends_are_words(word: str) -> None:
    assert list(separate_marks(word)) == split_words(f" {word}  ") == CASES[word]


def test_nothing_is_lost_and_parts_stay_as_they_are() -> None:
    drawn = random.Random(1)
    for _ in range(5000):
        word = "".join(drawn.choices("ab'é冰.,!\"()#%_-…„“<+1", k=drawn.randint(1, 12)))
        parts = separate_marks(word)
        assert "".join(parts) == word and all(parts)
        assert len(parts) == 1 or any(c.isalnum() or unicodedata.category(c)[0] in "SP" for c in word)
        for part in parts:
            again = separate_marks(part)
            assert again == (part,), "parts are split no further, so text that is split stays so"
