"""Sentences of tagged words as rows: against a builder that goes word by word, and words without tokens."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.data.windows import (
    UNKNOWN,
    InMemoryTokens,
    TokenClassificationDataset,
    first_subword_mask,
    n_marks,
    with_tokens,
)
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from attnkit.text.offsets import NONE, EncodedWords

Word = tuple[list[int], int]
"""Tokens and tag."""


def sentences_of(n: int, seed: int, longest: int = 12) -> list[list[Word]]:
    drawn = random.Random(seed)
    return [
        [
            ([drawn.randrange(4, 99) for _ in range(drawn.randint(1, 4))], drawn.choice([UNKNOWN, 0, 1, 2]))
            for _ in range(drawn.randint(1, longest))
        ]
        for _ in range(n)
    ]


def encoded(words: list[Word]) -> EncodedWords:
    sizes = [len(tokens) for tokens, _ in words]
    return EncodedWords(np.array([id for tokens, _ in words for id in tokens]), np.cumsum([0, *sizes])[:-1])


def rows_of(sentences: list[list[Word]], longest: int) -> TokenClassificationDataset:
    words = [encoded(sentence) for sentence in sentences]
    tags = [[tag for _, tag in sentence] for sentence in sentences]
    marks = [first_subword_mask(one, known).tolist() for one, known in zip(words, tags, strict=True)]
    assert max(max(line) for line in marks) < n_marks(3)
    return TokenClassificationDataset(
        InMemoryTokens([one.ids.tolist() for one in words]), InMemoryTokens(marks), longest
    )


def naive(words: list[Word], longest: int) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Return the rows of a sentence: ids, and (place, tag) of the words that each row tags."""
    ids, firsts = [id for tokens, _ in words for id in tokens], []
    for tokens, tag in words:
        firsts.append((sum(len(other) for other, _ in words[: len(firsts)]), tag))
        assert tokens == ids[firsts[-1][0] :][: len(tokens)]
    room = longest - 2
    begins = [0]
    while begins[-1] + room < len(ids):
        begins.append(min(begins[-1] + room // 2, len(ids) - room))
    spans = [(begin, min(begin + room, len(ids))) for begin in begins]
    found: list[tuple[list[int], list[tuple[int, int]]]] = [([BOS_ID, *ids[a:b], EOS_ID], []) for a, b in spans]
    for first, tag in firsts:
        shown = [min(first - a, b - 1 - first) if a <= first < b else -1 for a, b in spans]
        best = shown.index(max(shown))
        found[best][1].append((1 + first - begins[best], tag))
    return found


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 5), st.integers(0, 10_000), st.sampled_from([5, 8, 9, 13, 24, 200]))
def test_rows_are_those_of_a_loop_over_words(n: int, seed: int, longest: int) -> None:
    sentences = sentences_of(n, seed)
    rows = rows_of(sentences, longest)
    expected = [row for words in sentences for row in naive(words, longest)]
    assert len(rows) == len(expected)
    indices = np.random.default_rng(seed).permutation(len(rows))
    batch = rows.batch(indices)
    width = batch.ids.shape[1]
    words = list(zip(batch.firsts.tolist(), batch.labels.tolist(), strict=True))
    for place, row in enumerate(indices.tolist()):
        ids, tagged = expected[row]
        assert len(ids) == rows.lengths[0][row] <= longest
        assert batch.ids[place].tolist() == ids + [PAD_ID] * (width - len(ids))
        assert batch.real[place].tolist() == [True] * len(ids) + [False] * (width - len(ids))
        assert [(first - place * width, tag) for first, tag in words if first // width == place] == tagged
        assert rows.n_words[row] == sum(tag != UNKNOWN for _, tag in tagged)
    assert rows.counts(indices) == {"nll": int((batch.labels != UNKNOWN).sum())}
    tags = [tag for words in sentences for _, tag in words]
    assert rows.count_words() == [len(words) for words in sentences]
    assert rows.label_counts(3) == [tags.count(tag) for tag in range(3)]


@pytest.mark.parametrize("longest", [7, 200])
def test_every_word_is_tagged_once_and_in_order(longest: int) -> None:
    sentences = sentences_of(8, seed=5, longest=40)
    rows = rows_of(sentences, longest)
    assert (len(rows) > 20) == (longest == 7)
    found = iter([tag for row in range(len(rows)) for tag in rows.batch(np.array([row])).labels.tolist()])
    by_sentence = [list(islice(found, n)) for n in rows.count_words()]
    assert by_sentence == [[tag for _, tag in words] for words in sentences]
    assert next(found, None) is None


def test_many_rows_are_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows_of(sentences_of(20, seed=6), 7)
    monkeypatch.setattr("attnkit.data.windows._AT_ONCE", 3)
    parts = rows_of(sentences_of(20, seed=6), 7)
    assert parts.n_words.tolist() == whole.n_words.tolist() and parts.label_counts(3) == whole.label_counts(3)


def test_words_without_tokens_are_read_as_unknown() -> None:
    words = EncodedWords(np.array([7, 8, 9]), np.array([NONE, 0, NONE, NONE, 2, NONE]))
    found = with_tokens(words)
    assert found.ids.tolist() == [UNK_ID, 7, 8, UNK_ID, UNK_ID, 9, UNK_ID]
    assert found.firsts.tolist() == [0, 1, 3, 4, 5, 6]
    assert with_tokens(found) is found
    alone = with_tokens(EncodedWords(np.empty(0, np.int64), np.array([NONE])))
    assert (alone.ids.tolist(), alone.firsts.tolist()) == ([UNK_ID], [0])


def test_the_fingerprint_sees_every_change() -> None:
    def fingerprint(id: int = 5, tag: int = 1, split: bool = False, longest: int = 6) -> str:
        words: list[Word] = [([id], tag), ([6], 0)] * 4
        return rows_of([words[:4], words[4:]] if split else [words], longest).fingerprint

    assert len({fingerprint(), fingerprint(7), fingerprint(5, 2), fingerprint(5, 1, True), fingerprint(longest=7)}) == 5
    assert fingerprint() == fingerprint()
