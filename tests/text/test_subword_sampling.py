"""Subword regularization against the papers' algorithms and its own promises."""

from __future__ import annotations

import math
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
from attnkit.protocols import UNK_ID
from attnkit.text.config import VocabularyConfig
from attnkit.text.encoding import EncodedLines
from attnkit.text.subword_sampling import subword_sampler
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

TEXT = [
    "the lower the newer the slower, and slowest of all: the lowest",
    "newest  newer   new\twide wider widest widening; lowing low 1996 1997",
    "größer größte Größe, naïve übergrößen — 東京 東京都 <b> <b>",
    "don't 'tis l'homme 1st 2nd x1y2 a,b \"quoted\" 'quoted' rock'n'roll we'll, they'll (we'll) 3.14 50% 'em t't",
] * 4


def train(**settings: object) -> Tokenizer:
    return train_vocabulary(TEXT, VocabularyConfig.model_validate({"size": 420, "symbols": ("<b>",), **settings}))


VOCABULARY, UNIGRAM = train(), train(kind="unigram")
Setting = tuple[Tokenizer, float, "float | None"]  #: vocabulary, dropout, alpha
SETTINGS: dict[str, Setting] = {
    "BPE-dropout 0": (VOCABULARY, 0.0, None),
    "BPE-dropout 0.3": (VOCABULARY, 0.3, None),
    "BPE-dropout 0.99": (VOCABULARY, 0.99, None),
    "unigram 0": (UNIGRAM, 0.0, 0.0),
    "unigram 0.3": (UNIGRAM, 0.0, 0.3),
    "unigram 3": (UNIGRAM, 0.0, 3.0),
}


def draw(lines: list[str], setting: Setting, keys: range | None = None, longest: int = 10**6) -> list[list[int]]:
    vocabulary, dropout, alpha = setting
    encoded = EncodedLines.of(vocabulary.encode(lines))
    sampler = subword_sampler(vocabulary, longest=longest, dropout=dropout, alpha=alpha)
    numbers = np.array(range(len(lines)) if keys is None else keys, np.uint64)
    ids, lengths = sampler.sample(encoded.ids.astype(np.int64), encoded.lengths.astype(np.int64), numbers)
    ends = np.cumsum(lengths)
    return [ids[begin:end].tolist() for begin, end in pairwise([0, *ends])]


def sample(lines: list[str], dropout: float, keys: range | None = None, longest: int = 10**6) -> list[list[int]]:
    return draw(lines, (VOCABULARY, dropout, None), keys, longest)


LINES = [
    *TEXT[:4],
    *("", " ", "   ", "unseen wörds, Ωmega\t\ttabs", "a<b>b", "x" * 300, "''tis 'tis don't' l'x'y' t'1 1't a''t 'a'b'"),
    *("a <unk> sat", "<unk>", "</s> <pad>", "1a2b", "a-b_c", "’tis don’t ’", "we'll'x 3'll"),
]


def test_without_dropout_lines_are_encoded_as_by_the_tokenizer() -> None:
    assert sample(LINES, 0.0) == VOCABULARY.encode(LINES)


@settings(max_examples=300, deadline=None)
@given(st.text("at'n 1,.<>-\t", max_size=20))
def test_words_end_where_the_tokenizer_splits(line: str) -> None:
    assert sample([line], 0.0) == VOCABULARY.encode([line])
    assert draw([line], (UNIGRAM, 0.0, 10.0)) == UNIGRAM.encode([line])


@pytest.mark.parametrize("byte_fallback", [True, False])
def test_the_unknown_token_and_its_letters_are_not_exchanged(byte_fallback: bool) -> None:
    vocabulary = train(kind="unigram", byte_fallback=byte_fallback, size=420)
    line = "a <unk> Ω sat"
    (whole,) = vocabulary.encode([line])
    rows = draw([line] * 300, (vocabulary, 0.0, 0.0), range(300))
    assert {row.count(UNK_ID) for row in rows} == {whole.count(UNK_ID)}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=40), max_size=4))
def test_any_text_stays_the_same(lines: list[str]) -> None:
    for vocabulary, dropout, alpha in SETTINGS.values():
        found = draw(lines, (vocabulary, dropout, alpha))
        assert vocabulary.decode(found) == vocabulary.decode(vocabulary.encode(lines))


def algorithm_1(word: str, merges: Sequence[tuple[str, str]], dropout: float, chance: random.Random) -> tuple[str, ...]:
    """Segment a word as in Provilkov et al. 2020: one merge a round, of those that are not left out."""
    split = [*word]
    while kept := [
        (merges.index(pair), place)
        for place, pair in enumerate(pairwise(split))
        if pair in merges and chance.random() >= dropout
    ]:
        _, place = min(kept)
        split[place : place + 2] = [split[place] + split[place + 1]]
    return tuple(split)


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_segmentations_are_as_frequent_as_in_the_paper(dropout: float) -> None:
    """Total variation distance between 10,000 draws of each, over whole segmentations."""
    n, chance = 10_000, random.Random(1)
    merges = [(left, right) for left, right in VOCABULARY.model["merges"]]
    for word in ("lowest", "widening"):
        theirs = Counter(algorithm_1("Ġ" + word, merges, dropout, chance) for _ in range(n))
        names = VOCABULARY.names
        ours = Counter(tuple(names[id] for id in row) for row in sample([word] * n, dropout, range(n)))
        distance = sum(abs(theirs[one] - ours[one]) for one in {*theirs, *ours}) / (2 * n)
        noise = sum((count / np.pi) ** 0.5 for count in theirs.values()) / n  # expected of two samples of one source
        assert len(ours) > 3
        assert distance < 1.5 * noise


def segmentations(word: str, scores: dict[str, float], alpha: float) -> dict[tuple[str, ...], float]:
    """Return the weight of every segmentation of a word: the product of its probabilities to the power alpha."""
    if not word:
        return {(): 1.0}
    return {
        (word[:end], *rest): math.exp(alpha * scores[word[:end]]) * weight
        for end in range(1, len(word) + 1)
        if word[:end] in scores
        for rest, weight in segmentations(word[end:], scores, alpha).items()
    }


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.2])
def test_unigram_segmentations_are_as_frequent_as_their_weights(alpha: float) -> None:
    n, scores, names = 10_000, dict(UNIGRAM.model["vocab"]), UNIGRAM.names
    for word in ("lowest", "newer"):
        weights = segmentations("Ġ" + word, scores, alpha)
        total = sum(weights.values())
        ours = Counter(tuple(names[id] for id in row) for row in draw([word] * n, (UNIGRAM, 0.0, alpha), range(n)))
        assert ours.keys() <= weights.keys() and len(ours) > 3
        distance = sum(abs(weight / total - ours[one] / n) for one, weight in weights.items()) / 2
        noise = sum((weight / total / n / (2 * np.pi)) ** 0.5 for weight in weights.values())  # of a multinomial sample
        assert distance < 1.3 * noise


def test_a_large_exponent_leaves_the_best_segmentation() -> None:
    lines = [*TEXT[:3], "", "  ", "unseen wörds\t\ttabs"]
    assert draw(lines, (UNIGRAM, 0.0, 10.0)) == UNIGRAM.encode(lines)


@pytest.mark.parametrize("name", ["BPE-dropout 0.3", "unigram 0.3"])
def test_a_line_depends_on_its_key_only(name: str) -> None:
    lines, setting = TEXT[:3], SETTINGS[name]
    together = draw(lines, setting, range(7, 10))
    alone = [draw([line], setting, range(key, key + 1))[0] for line, key in zip(lines, range(7, 10), strict=True)]
    assert together == alone
    assert together != draw(lines, setting, range(17, 20))


@pytest.mark.parametrize("name", ["BPE-dropout 0.99", "unigram 0"])
def test_symbols_and_long_words_stay_whole(name: str) -> None:
    setting, symbol = SETTINGS[name], SETTINGS[name][0].token_id("<b>")
    assert all(row.count(symbol) == 2 for row in draw([TEXT[2]] * 50, setting, range(50)))
    long = ["lowest" * 60]  # more bytes than a word may have
    assert draw(long, setting) == setting[0].encode(long)


def test_a_line_that_gets_too_long_keeps_its_encoding() -> None:
    whole = VOCABULARY.encode([TEXT[0]])[0]
    rows = sample([TEXT[0]] * 200, 0.05, range(200), longest=len(whole) + 5)
    assert whole in rows
    assert any(row != whole for row in rows)
    assert all(len(row) <= len(whole) + 5 for row in rows)


@pytest.mark.parametrize("name", ["BPE-dropout 0.3", "unigram 0.3"])
def test_plain_python_gives_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    compiled = draw(TEXT[:3], SETTINGS[name])
    monkeypatch.setattr(subwords, "compiled_loop", lambda: None)
    assert draw(TEXT[:3], SETTINGS[name]) == compiled


@pytest.mark.parametrize("kind", ["unigram", "wordpiece", "char", "word", "bpe"])
def test_other_kinds_are_refused(kind: str) -> None:
    key, alpha, needed = ("unigram_alpha", 0.1, "unigram") if kind == "bpe" else ("bpe_dropout", None, "bpe")
    with pytest.raises(UsageError, match=f"{key} needs a vocabulary of kind {needed}, not {kind}"):
        subword_sampler(train(kind=kind, size=600), longest=100, dropout=0.1, alpha=alpha)
