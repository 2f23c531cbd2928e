"""Words, numbers and marks of lines as arrays, against one line at a time; frequent lines."""

from __future__ import annotations

import random
import re
from collections import Counter

import numpy as np
import pytest

from attnkit.quality.lines import MAX_WORDS, QUESTION, STOP, Side, WordNumbers
from attnkit.quality.pair_filters import DuplicateFinder

LINES = [
    "Two dogs, 12 of them: at 3:40?",
    "",
    "İstanbul ΟΔΟΣ straße 1२३ 45",
    "犬は走る。12匹?",
    "\x0b \u2028 tab\tand\u00a0space ?  ",
    "word " * 100 + "7",
    "a\ud800b 🐕",
    "9",
]


def drawn_lines() -> list[str]:
    random_source = random.Random(0)
    pieces = ["Dog", "dog", "12", "3", ",", " ", " ", "?", "é", "漢", "«", "\t", "٣", "𝟗", "𐒠", "İ", "Σ"]
    return LINES + ["".join(random_source.choices(pieces, k=random_source.randint(0, 60))) for _ in range(3000)]


def test_batches_of_lines_give_what_single_lines_give() -> None:
    lines = drawn_lines()
    whole = Side(lines, WordNumbers())
    ids, marks = whole.ids(np.arange(len(lines))), whole.marks(np.arange(len(lines)))
    words: dict[str, int] = {}
    for line, row, (n_numbers, n_pauses, end) in zip(lines, ids, marks, strict=True):
        if "漢" not in line and "犬" not in line:
            expected = re.findall(r"[\w\u0307]+|[^\w\s]", line.lower())  # U+0307 belongs to a lower-case İ
            found = [words.setdefault(word, number) for word, number in zip(expected, row.tolist(), strict=False)]
            assert found == row[row > 0].tolist()
            assert len(found) == min(MAX_WORDS, len(expected))
        assert n_numbers == min(99, len(re.findall(r"\d+", line[:512])))
        assert n_pauses == sum(c in ',،、，;；:：()（）"«»„“”' for c in line[:512])
        assert end == (QUESTION if line[:512].rstrip().endswith("?") else STOP)
    assert len(set(words.values())) == len(words) > 20


def test_lines_asked_for_later_have_the_same_numbers() -> None:
    lines = drawn_lines()
    words = WordNumbers()
    first, second = Side(lines, words), Side(lines, words)
    some = np.array([5, 2, 2900, 7])
    assert np.array_equal(first.ids(some), second.ids(np.arange(len(lines)))[some][:, : first.ids(some).shape[1]])


@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_lines_that_occur_often(n: int) -> None:
    items = random.Random(n).choices(range(max(1, n // 6)), k=n)
    finder = DuplicateFinder()
    for item in items:
        finder.add(item)
    counts = Counter(items)
    assert finder.frequent(7).tolist() == [i for i, item in enumerate(items) if counts[item] >= 7]
