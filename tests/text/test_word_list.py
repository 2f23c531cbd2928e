"""The list of words that get vectors, as text."""

from __future__ import annotations

import numpy as np
import pytest

from attnkit.errors import RunError
from attnkit.text.word_vocabulary import WordVocabulary


def test_words_come_back() -> None:
    words = WordVocabulary(["the", "漢字", "a b", "\u2028", "x"], np.array([9, 4, 4, 2, 0]))
    raw = words.to_bytes()
    assert raw.startswith(b"the\t9\n")
    found = WordVocabulary.from_bytes(raw)
    assert found == words and found != WordVocabulary(words.words, words.counts + 1)
    assert found.counts.dtype == np.int64
    assert (found.index("漢字"), found.index("no"), "x" in found, len(found), found.total) == (1, None, True, 5, 19)
    assert found.ids(["x", "?", "the"]).tolist() == [4, -1, 0]
    assert len(WordVocabulary.from_bytes(b"")) == 0


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"a\t2\nb\t1", "line 2 is cut off"),
        (b"a\t2\n\t1\n", "line 2 is not a word"),
        (b"a\t2\nb\n", "line 2 is not a word"),
        (b"a\t-2\n", "line 1 is not a word"),
        (b"a\t\xc2\xb2\n", "line 1 is not a word"),
        (b"a\t2\tb\n", "line 1 is not a word"),
        (b"a\t99999999999999999999\n", "line 1 is not a word"),
        (b"a\t1\nb\t2\n", "line 2 has a higher count"),
        (b"a\t3\nb\t2\na\t1\n", "line 3 repeats"),
        (b"a\t2\n\xff\t1\n", "line 2 is not UTF-8"),
    ],
)
def test_a_damaged_list_names_the_line(raw: bytes, text: str) -> None:
    with pytest.raises(RunError, match=text):
        WordVocabulary.from_bytes(raw)
