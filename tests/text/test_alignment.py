"""Characters and pieces, for every kind of vocabulary: against counting bytes, and against what pieces must hold."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from attnkit.errors import DataError
from attnkit.protocols import SPECIALS, UNK_ID
from attnkit.text import tokenizer
from attnkit.text import vocabulary_schema as engine
from attnkit.text.config import TrainedKind, VocabularyConfig
from attnkit.text.offsets import NONE, align, encode_words
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary
from attnkit.text.vocabulary_schema import CHARACTERS

KINDS: tuple[TrainedKind, ...] = ("bpe", "unigram", "wordpiece", "word", "char")
ODD = [*"abcdeABC  ..,'0", "é", "e\u0301", "İ", "ﬁ", "½", "日", "😀", "\u00a0", "\u3000", "<b>", "<c>", "가", "ẞ", "\t"]
"""Letters that change their length when lower-cased, composed or decomposed, spaces of all widths, and symbols."""


def texts(n: int, seed: int, longest: int = 40) -> list[str]:
    drawn = random.Random(seed)
    return ["".join(drawn.choices(ODD, k=drawn.randint(0, longest))) for _ in range(n)]


def vocabulary(kind: TrainedKind, **changes: object) -> Tokenizer:
    settings = {"kind": kind, "size": 600, "min_frequency": 2, **changes}
    return train_vocabulary(texts(80, seed=1), VocabularyConfig.model_validate(settings))


def by_bytes(vocabulary: Tokenizer, text: str, ids: list[int]) -> list[tuple[int, int]]:
    """Count the bytes of the pieces, none of them unknown, to find the characters that each has a part of."""
    lead = " " if text and vocabulary.config.kind not in ("char", "gpt2") else ""
    owner = [place for place, character in enumerate(lead + text) for _ in character.encode()]
    found, at = [], 0
    for id in ids:
        size = len(vocabulary.bytes_of(id))
        found.append((max(0, owner[at] - len(lead)), owner[at + size - 1] + 1 - len(lead)))
        at += size
    assert at == len(owner)
    return found


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char"])
@pytest.mark.parametrize("symbols", [(), ("<b>", "<c>")])
def test_places_are_those_that_bytes_say(kind: TrainedKind, symbols: tuple[str, ...]) -> None:
    ours = vocabulary(kind, symbols=symbols)
    given = texts(60, seed=2)
    for text, ids, found in zip(given, ours.encode(given), align(ours, given), strict=True):
        assert found.ids.tolist() == ids
        assert list(zip(found.begins, found.ends, strict=True)) == by_bytes(ours, text, ids)


OPTIONS = [
    option
    for option in product(KINDS, [False, True], ["none", "nfc", "nfkc"], [False, True])
    if option[0] != "word" or not option[3]  # which has no bytes
]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("kind", "lowercase", "normalize", "fallback"), OPTIONS)
def test_pieces_hold_the_text_they_point_to(kind: TrainedKind, lowercase: bool, normalize: str, fallback: bool) -> None:
    ours = vocabulary(kind, lowercase=lowercase, normalize=normalize, byte_fallback=fallback, symbols=("<b>",))
    given = texts(40, seed=3)
    for text, ids, found in zip(given, ours.encode(given), align(ours, given), strict=True):
        assert found.ids.tolist() == ids
        covered = np.zeros(len(text), bool)
        for id, begin, end in zip(ids, found.begins.tolist(), found.ends.tolist(), strict=True):
            covered[begin:end] = True
            if id != UNK_ID:
                assert ours.bytes_of(id).strip() in ours.normalize(text[begin:end]).encode()
        assert covered.all()
        assert (np.diff(found.begins) >= 0).all() and (np.diff(found.ends) >= 0).all()


def test_a_long_text_without_spaces_is_cut_as_for_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = vocabulary("bpe")
    monkeypatch.setattr(tokenizer, "MAX_CHUNK", 7)
    text = "abcde.é日ABC" * 3 + " ab"
    (found,) = align(ours, [text])
    assert [found.ids.tolist()] == ours.encode([text])
    assert list(zip(found.begins, found.ends, strict=True)) == by_bytes(ours, text, found.ids.tolist())


def test_answers_worked_out_by_hand() -> None:
    ours = train_vocabulary(["the cafe sat"] * 5, VocabularyConfig(kind="char", lowercase=True, normalize="nfkc"))
    text = "The ﬁne Cafe\u0301 😀!"  # pieces: t h e _ f i n e _ c a f é(2 bytes) _ 😀(4 bytes) !(1 byte)
    (found,) = align(ours, [text])
    assert found.pieces(4, 7) == (4, 8)  # ﬁne is four pieces
    assert found.pieces(8, 13) == (9, 14)  # the last is é, a letter and an accent
    assert found.cut(text, 9, 14) == found.cut(text, 9, 13) == "Cafe\u0301"
    assert found.pieces(14, 15) == (15, 19)
    assert found.cut(text, 16, 17) == "😀"  # a part of a character represents all of it
    assert found.cut(text, 3, 9) == "ﬁne"
    assert found.pieces(3, 3) is None and found.pieces(99, 100) is None and found.cut(text, 5, 5) == ""


def test_spans_come_back_whole_in_every_kind() -> None:
    given = ["The cat sat on Émile's mat, at 10.30 in 日本 😀."]
    for kind in KINDS:
        (found,) = align(vocabulary(kind, lowercase=True), given)
        for answer in ("The cat", "cat sat", "Émile's mat,", "😀.", "10.30 in 日本"):
            begin = given[0].index(answer)
            span = found.pieces(begin, begin + len(answer))
            assert span is not None and found.cut(given[0], *span) == answer


@pytest.mark.parametrize("kind", KINDS)
def test_words_are_encoded_as_in_their_sentence(kind: TrainedKind) -> None:
    ours = vocabulary(kind, symbols=("<b>",))
    sentences = [[word for word in text.replace("\t", " ").split(" ") if word] for text in texts(40, seed=4)]
    lines = [" ".join(words) for words in sentences]
    for words, found, aligned in zip(sentences, encode_words(ours, sentences), align(ours, lines), strict=True):
        assert found.ids.tolist() == aligned.ids.tolist()
        at = 0
        for word, first in zip(words, found.firsts.tolist(), strict=True):
            span = aligned.pieces(at, at + len(word))
            assert span is not None
            # Where nothing longer starts with the space before a word, the space is a piece, and the word's first one.
            assert first == span[0] - (ours.decode([found.ids[first : span[0]].tolist()]) == [""] and first < span[0])
            at += len(word) + 1


def test_words_without_pieces_have_no_first() -> None:
    (found,) = encode_words(vocabulary("bpe"), [["", "a", ""]])
    assert found.firsts.tolist() == [NONE, 0, NONE]


def test_half_a_character_is_refused() -> None:
    for call in (align, encode_words):
        with pytest.raises(DataError, match="lone surrogate"):
            call(vocabulary("bpe"), ["a\ud800"])


def imported(kind: str) -> Tokenizer:
    """Return a small vocabulary that cuts as BERT's (lower-casing, without accents) or GPT-2's does."""
    letters = sorted({*"abcdefghijklmnopqrstuvwxyz.,'019日½가"})
    merges = [["Ġ", "a"], ["Ġa", "b"], ["b", "c"]]
    if kind == "bert":
        names = [*SPECIALS, *letters, *("##" + letter for letter in letters), "cafe", "##bc"]
    else:
        names = [*SPECIALS, *CHARACTERS, *("".join(merge) for merge in merges)]
    config = VocabularyConfig.model_validate({"kind": kind, "size": len(names), "lowercase": kind == "bert"})
    ids = {name: id for id, name in enumerate(names)}
    return Tokenizer(config, engine.pipeline(config, engine.model_of(config, ids, merges)))


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_imported_vocabularies_are_aligned_too(kind: str) -> None:
    ours = imported(kind)
    given = ["Café abc, ab 日本 abc", " ab abc  bc", "e\u0301\u0000a\tb", "", "😀 x"]
    for text, ids, found in zip(given, ours.encode(given), align(ours, given), strict=True):
        assert found.ids.tolist() == ids
        if kind == "gpt2":
            assert list(zip(found.begins, found.ends, strict=True)) == by_bytes(ours, text, ids)
    (found,) = align(ours, given[:1])
    for answer in ("Café", "abc,", "ab 日"):
        begin = given[0].index(answer)
        span = found.pieces(begin, begin + len(answer))
        assert span is not None and found.cut(given[0], *span) == answer
    sentences = [["Café", "abc", "ab", "e"], ["x"], []]
    lines = ours.encode([" ".join(words) for words in sentences])
    assert [words.ids.tolist() for words in encode_words(ours, sentences)] == lines
