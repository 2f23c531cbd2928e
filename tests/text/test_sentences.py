"""Ends of sentences in many scripts, and abbreviations learned from text."""

from __future__ import annotations

import random
import re
import time

import pytest

from attnkit.text import sentences
from attnkit.text.sentences import ORDINAL, SentenceSplitter, SourceStatistics, learn_statistics

CASES = {
    "english": ["He left. ", "She stayed! ", "Did he? ", "No."],
    "white space": ["One.   ", "Two.\t", "Three."],
    "title": ["Dr. Smith met Mrs. Jones. ", "They spoke."],
    "initials": ["J. R. R. Tolkien wrote it. ", "It was good."],
    "pronoun": ["She is as tall as I. ", "We know."],
    "dotted": ["He lives in the U.S. Senate building, e.g. Monday. ", "Fine."],
    "number": ["See Fig. 5 and no. 7. ", "He said no. ", "Then he left."],
    "decimal": ["It costs 3.50 at 12.30 today. ", "Buy it."],
    "quotation": ['He said "Go!" ', "Then he left. ", '"Really?" she said.'],
    "parentheses": ["He came. ", "(She did not.) ", "Nobody asked."],
    "ellipsis": ["Well... it is late. ", "Wait... ", "What?"],
    "address": ["Look at www.example.com or a.b@c.de now. ", "Good."],
    "enumeration": ["1. Foo is here. ", "2. Bar is there."],
    "no end": ["He left. ", "She stayed"],
    "lower case": ["he left. she stayed."],
    "german": ["Sie kommt z.B. Montag bzw. Dienstag. ", "Gut!"],
    "french": ["Où est-il ? ", "« Ici. » ", "Bien !"],
    "spanish": ["¿Dónde está? ", "¡Aquí! ", "Bien."],
    "russian": ["Он ушёл в 1999 г. в Москву. ", "Она осталась. ", "Да!"],
    "greek": ["Πού είναι; Εδώ. ", "Καλά."],
    "arabic": ["هل أنت بخير؟ ", "نعم. ", "شكرا."],
    "urdu": ["یہ ہے۔ ", "وہ نہیں ہے۔"],
    "hindi": ["यह है। ", "वह नहीं है।"],
    "chinese": ["今天很好。", "我们走吧！", "真的吗？", "真的"],
    "chinese quotation": ["他说：“走吧。”", "她走了。"],
    "japanese": ["今日は晴れ。", "行こう！"],
    "japanese quotation": ["「はい。」と言った。", "次。"],
    "korean": ["그는 떠났다. ", "그녀는 남았다."],
    "armenian": ["Նա գնաց։ ", "Լավ։"],
    "marks only": ["?! ..."],
    "smiley": ["It works! :-)"],
    "price": ["It is cheap. ", "$5 is all."],
    "german quotation": ["»Gut.« ", "Er ging. ", "»Ja«, sagte er."],
    "empty": [""],
    "space": ["  \t "],
}


@pytest.mark.parametrize("name", CASES)
def test_sentences_of_many_languages(name: str) -> None:
    found = SentenceSplitter().split("".join(CASES[name]))
    assert [text + gap for text, gap in found] == CASES[name]
    assert all(text and (gap == "" or gap.isspace()) for text, gap in found) or len(found) == 1


def test_the_parts_joined_are_the_line() -> None:
    rng = random.Random(0)
    alphabet = [
        "Mr",
        "a",
        "B",
        "I",
        "12",
        "z.B",
        "。",
        "？",
        "…",
        ".",
        "!",
        "?",
        " ",
        "  ",
        "\u3000",
        '"',
        "」",
        ")",
        "«",
        "中",
    ]
    n_split = 0
    for _ in range(3000):
        line = "".join(rng.choices(alphabet, k=rng.randint(0, 30)))
        found = SentenceSplitter().split(line)
        assert "".join(text + gap for text, gap in found) == line
        n_split += len(found) > 1
    assert n_split > 1000


def test_abbreviations_are_learned_from_their_use() -> None:
    rng = random.Random(1)
    nouns = ["table", "garden", "river", "window", "street", "mountain"]
    lines = [f"The {rng.choice(nouns)} near abt. {rng.choice(nouns)} is old." for _ in range(40)]
    lines += [f"The {rng.choice(nouns)} is green. The {rng.choice(nouns)} is new." for _ in range(40)]
    lines += [f"The green {rng.choice(nouns)} is new." for _ in range(5)]
    found = learn_statistics(lines, [9] * len(lines))
    assert found.abbreviations == ["abt"]  # not green, whose full stop ends a sentence
    splitter = SentenceSplitter(found)
    assert splitter.split("The river near abt. Dover is old. The end.")[0][0] == "The river near abt. Dover is old."
    assert len(SentenceSplitter().split("The river near abt. Dover is old. The end.")) == 3
    assert found.sentences == 2 and found.tokens == 9


def test_ordinal_numbers_are_learned_where_they_have_full_stops() -> None:
    german = ["Am 3. Mai kam der 2. Brief.", "Der 12. Tag ist da.", "Er hat 3 Hunde."] * 10
    assert ORDINAL in learn_statistics(german, [6] * 30).abbreviations
    english = ["He has 3 dogs and 12 cats.", "We saw 12. They saw 3 of them.", "It is late. We go."] * 10
    assert ORDINAL not in learn_statistics(english, [6] * 30).abbreviations
    line = "Er kam am 3. Mai. Gut."
    assert len(SentenceSplitter(learn_statistics(german, [6] * 30)).split(line)) == 2
    assert len(SentenceSplitter().split(line)) == 3


def test_a_common_first_word_ends_an_abbreviation() -> None:
    lines = ["The man and the dog run.", "The dog sees the man.", "They run."] * 3
    splitter = SentenceSplitter(learn_statistics(lines, [6] * 9))
    assert len(splitter.split("He sold cars, bikes, etc. The shop closed.")) == 2
    assert len(splitter.split("He sold cars, etc. Rome was far.")) == 1
    assert len(splitter.split("He met Mr. The and left.")) == 1


def test_lengths_are_those_of_99_percent_of_the_lines() -> None:
    lines = ["One."] * 990 + ["One. Two. Three."] * 10
    found = learn_statistics(lines, [2] * 990 + [500] * 10)
    assert (found.sentences, found.tokens) == (1, 2)
    assert learn_statistics([], []) == SourceStatistics()


@pytest.mark.parametrize("text", ["Dr. A ", "a. ", "A. ", "。 ", ". ", "e.g. A "])
def test_long_lines_take_linear_time(text: str) -> None:
    def seconds(n: int) -> float:
        began = time.process_time()
        SentenceSplitter().split(text * n)
        return time.process_time() - began

    seconds(1000)
    assert seconds(40_000) < 40 * seconds(4000) + 0.5  # quadratic would be 100 times


def test_a_look_for_marks_before_the_end_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    chance, splitter = random.Random(0), SentenceSplitter()
    pieces = ["A", "b", "Dr", "1", ".", "!", "?", "。", "…", '"', ")", "»", "」", " ", "  ", "\t", "\u00a0"]
    lines = ["".join(chance.choices(pieces, k=chance.randint(0, 12))) for _ in range(20_000)]
    found = [splitter.split(line) for line in lines]
    monkeypatch.setattr(sentences, "_TAIL", "")
    monkeypatch.setattr(sentences, "_ANY_STOP", re.compile(""))  # always found
    assert found == [splitter.split(line) for line in lines]
    assert sum(len(one) > 1 for one in found) > 100
