"""Glossaries: their files, the terms they find, and phrases counted as words of their own."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from attnkit.errors import DataError
from attnkit.text.glossary import Glossary
from attnkit.text.word_boundaries import count_phrases, find_tokens


def found(glossary: Glossary, text: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(text[one.begin : one.end], one.entry.targets) for one in glossary.find(text)]


def test_the_longest_terms_are_found_as_whole_words() -> None:
    glossary = Glossary({"ice": "Eis", "ice hockey": "Eishockey", "New York": "", "AI": ("KI",), "c++": "C++"})
    assert found(glossary, "Ice  hockey on ice, not in service.") == [
        ("Ice  hockey", ("Eishockey",)),
        ("ice", ("Eis",)),
    ]
    assert found(glossary, "new york is not New York; ai is not AI") == [("New York", ()), ("AI", ("KI",))]
    assert found(glossary, "C++ and c+ ice-hockey") == [("C++", ("C++",)), ("ice", ("Eis",))]
    assert found(glossary, "") == [] == found(glossary, "ices price")


def test_text_in_capitals_is_any_term_and_what_is_written_as_in_the_text_comes_first() -> None:
    glossary = Glossary({"Polish": "polnisch", "polish": "putzen", "New York": "", "US": "USA", "Ä": "x"})
    assert found(glossary, "POLISH NEW YORK") == [("POLISH", ("putzen",)), ("NEW YORK", ())]
    assert found(glossary, "Polish polish") == [("Polish", ("polnisch",)), ("polish", ("putzen",))]
    assert found(glossary, "us Us new York ä") == []


def test_terms_of_scripts_without_spaces_and_with_marks() -> None:
    glossary = Glossary({"冰球": "ice hockey", "क": "k"})
    assert found(glossary, "他打冰球吗?") == [("冰球", ("ice hockey",))]
    assert found(glossary, "क कि") == [("क", ("k",))]


def test_a_file_adds_up_the_forms_of_a_term(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("dog\tHund\tHunde\n\ndog\tHündin\nBMW\n woman \t Frau \t\nCSAIL\nCSAIL\tMIT CSAIL\n")
    targets = {entry.source: entry.targets for entry in Glossary.load(path).entries.values()}
    assert targets == {
        "dog": ("Hund", "Hunde", "Hündin"),
        "BMW": (),
        "woman": ("Frau",),
        "CSAIL": ("CSAIL", "MIT CSAIL"),
    }


@pytest.mark.parametrize(("text", "where"), [("dog\tHund\n\tKatze\n", ":2"), ("\n \n", ""), ("", "")])
def test_files_without_terms_are_refused(tmp_path: Path, text: str, where: str) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text(text)
    with pytest.raises(DataError) as refused:
        Glossary.load(path)
    assert refused.value.where == f"{path}{where}" and refused.value.help


def test_found_terms_equal_a_search_by_patterns() -> None:
    """In drawn texts: of all matches from left to right the longest one."""
    n_found = 0
    for seed in range(200):
        draw = random.Random(seed)
        words = ["a", "b", "ab", "ba"]
        terms = {" ".join(draw.choices(words, k=draw.randint(1, 3))): "x" for _ in range(5)}
        text = "".join(draw.choice([*words, " ", " ", ", "]) for _ in range(30))
        pattern = "|".join(sorted(map(re.escape, terms), key=len, reverse=True)).replace("\\ ", r"\s*(?<=\s)")
        expected = [match[0] for match in re.finditer(rf"\b(?:{pattern})\b", text)]
        assert [term for term, _ in found(Glossary(terms), text)] == expected
        n_found += len(expected)
    assert n_found > 200


def test_phrases_are_counted_without_overlaps() -> None:
    for seed in range(300):
        draw = random.Random(seed)
        text = "".join(draw.choices("ab ", k=20))
        phrases = tuple(
            {" ".join("".join(draw.choices("ab", k=draw.randint(1, 2))) for _ in range(draw.randint(1, 2)))}
        )
        expected = len(re.findall(rf"\b{re.escape(phrases[0])}\b", text))
        assert count_phrases(text, phrases) == expected
    assert count_phrases("Hund eins", ("Hund", "Hund e")) == 1 == count_phrases("Hund e", ("Hund", "Hund e"))
    assert count_phrases("冰球冰球", ("冰球",)) == 2 and count_phrases("x", ("",)) == 0
    assert count_phrases("New York, York", ("York", "New York")) == 2
    assert [find_tokens(""), find_tokens("a b")] == [[], [(0, 1), (2, 3)]]
