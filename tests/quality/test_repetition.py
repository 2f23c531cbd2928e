"""Repeated words: the quick tests before the count change no answer."""

from __future__ import annotations

import random

from attnkit.quality.repetition import MIN_REPEATS, count_repeats, has_repeats


def test_repeats_are_those_of_the_count() -> None:
    n_found = 0
    for seed in range(5000):
        draw = random.Random(seed)
        n_words, words = draw.randint(0, 40), list[str]()
        piece = draw.choices(["a", "b", "0", ".", "ä"], k=draw.randint(1, 9))
        while len(words) < n_words:
            words += piece if draw.random() < 0.7 else [draw.choice("ab0.")]
        lettered = [word if word.isalpha() else str(place) for place, word in enumerate(words)]
        expected = count_repeats(lettered) >= MIN_REPEATS
        assert has_repeats(" ".join(words), words) == expected, words
        assert count_repeats(lettered, 3) == min(3, count_repeats(lettered)), words
        n_found += expected
    assert 300 < n_found < 4000
