"""BPE-dropout against the tokenizers library and its own promises."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.errors import UsageError
from attnkit.kernels import subwords
from attnkit.text.bpe_dropout import BpeDropout
from attnkit.text.config import VocabularyConfig
from attnkit.text.encoding import EncodedLines
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

TEXT = [
    "the lower the newer the slower, and slowest of all: the lowest",
    "newest  newer   new\twide wider widest widening; lowing low 1996 1997",
    "größer größte Größe, naïve übergrößen — 東京 東京都 <b> <b>",
] * 4


def train(**settings: object) -> Tokenizer:
    return train_vocabulary(TEXT, VocabularyConfig.model_validate({"size": 420, "symbols": ("<b>",), **settings}))


VOCABULARY = train()


def sample(lines: list[str], dropout: float, keys: range | None = None, longest: int = 10**6) -> list[list[int]]:
    encoded = EncodedLines.of(VOCABULARY.encode(lines))
    sampler = BpeDropout(VOCABULARY, dropout, longest)
    numbers = np.array(range(len(lines)) if keys is None else keys, np.uint64)
    ids, lengths = sampler.sample(encoded.ids.astype(np.int64), encoded.lengths.astype(np.int64), numbers)
    ends = np.cumsum(lengths)
    return [ids[begin:end].tolist() for begin, end in pairwise([0, *ends])]


def test_without_dropout_lines_are_encoded_as_by_the_tokenizer() -> None:
    lines = [*TEXT[:3], "", " ", "   ", "unseen wörds, Ωmega\t\ttabs", "a<b>b", "x" * 300]
    assert sample(lines, 0.0) == VOCABULARY.encode(lines)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=40), max_size=4))
def test_any_text_stays_the_same(lines: list[str]) -> None:
    for dropout in (0.0, 0.3, 0.99):
        assert VOCABULARY.decode(sample(lines, dropout)) == VOCABULARY.decode(VOCABULARY.encode(lines))


def algorithm_1(word: str, merges: Sequence[tuple[str, str]], dropout: float, draw: random.Random) -> tuple[str, ...]:
    """Segment a word as in Provilkov et al. 2020: one merge a round, of those that are not left out."""
    split = [*word]
    while kept := [
        (merges.index(pair), place)
        for place, pair in enumerate(pairwise(split))
        if pair in merges and draw.random() >= dropout
    ]:
        _, place = min(kept)
        split[place : place + 2] = [split[place] + split[place + 1]]
    return tuple(split)


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_segmentations_are_as_frequent_as_in_the_paper(dropout: float) -> None:
    """Total variation distance between 10,000 draws of each, over whole segmentations."""
    n, draw = 10_000, random.Random(1)
    merges = [(left, right) for left, right in VOCABULARY.model["merges"]]
    for word in ("lowest", "widening"):
        theirs = Counter(algorithm_1("Ġ" + word, merges, dropout, draw) for _ in range(n))
        names = VOCABULARY.names
        ours = Counter(tuple(names[id] for id in row) for row in sample([word] * n, dropout, range(n)))
        distance = sum(abs(theirs[one] - ours[one]) for one in {*theirs, *ours}) / (2 * n)
        noise = sum((count / np.pi) ** 0.5 for count in theirs.values()) / n  # expected of two samples of one source
        assert len(ours) > 3
        assert distance < 1.5 * noise


def test_a_line_depends_on_its_key_only() -> None:
    lines = TEXT[:3]
    together = sample(lines, 0.4, range(7, 10))
    alone = [sample([line], 0.4, range(key, key + 1))[0] for line, key in zip(lines, range(7, 10), strict=True)]
    assert together == alone
    assert together != sample(lines, 0.4, range(17, 20))


def test_symbols_and_long_lines_and_words_stay_whole() -> None:
    symbol = VOCABULARY.token_id("<b>")
    assert all(row.count(symbol) == 2 for row in sample([TEXT[2]] * 50, 0.9, range(50)))
    whole = VOCABULARY.encode([TEXT[0]])[0]
    rows = sample([TEXT[0]] * 200, 0.05, range(200), longest=len(whole) + 5)
    assert whole in rows
    assert any(row != whole for row in rows)
    assert all(len(row) <= len(whole) + 5 for row in rows)
    long = "lowest" * 60  # more pieces than a word may have
    assert sample([long], 0.9) == VOCABULARY.encode([long])


def test_plain_python_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = sample(TEXT[:3], 0.3)
    monkeypatch.setattr(subwords, "compiled_loop", lambda: None)
    assert sample(TEXT[:3], 0.3) == compiled


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "char", "word"])
def test_other_kinds_are_refused(kind: str) -> None:
    with pytest.raises(UsageError, match=f"needs a vocabulary of kind bpe, not {kind}"):
        BpeDropout(train(kind=kind, size=600), 0.1, 100)
