"""SQuAD's JSON: read, split by paragraphs, written and read again, and each fault with its place."""

from __future__ import annotations

import copy
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from attnkit.errors import DataError
from attnkit.text.squad import Answer, Question, lone_surrogate, mend_surrogates, read_squad, write_squad

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from squad_parts import split_paragraphs

CONTEXT = "Zoë gave 😀 308 points in 1990."
TREE: dict[str, Any] = {
    "version": "v2.0",
    "data": [
        {
            "title": "Points",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "a",
                            "question": "How many?",
                            "answers": [
                                {"text": "308 points", "answer_start": 11},
                                {"text": "308", "answer_start": 11},
                            ],
                        },
                        {"id": "b", "question": "Why?", "answers": [], "is_impossible": True},
                        {"id": "c", "question": "When?", "is_impossible": False},
                    ],
                }
            ],
        }
    ],
}


def write(folder: Path, tree: Any) -> Path:
    path = folder / "a.json"
    path.write_text(tree if isinstance(tree, str) else json.dumps(tree), encoding="utf-8")
    return path


def test_questions_and_answers_are_read(tmp_path: Path) -> None:
    (paragraph,) = read_squad(write(tmp_path, TREE))
    assert (paragraph.title, paragraph.context) == ("Points", CONTEXT)
    first, second, third = paragraph.questions
    assert first == Question("a", "How many?", (Answer("308 points", 11), Answer("308", 11)), False)
    assert (second.impossible, second.labeled) == (True, True)
    assert (third.impossible, third.labeled, third.answers) == (False, False, ())
    path = tmp_path / "b.json.gz"
    path.write_bytes(gzip.compress(json.dumps(TREE).encode()))
    assert read_squad(path) == [paragraph]


def test_what_is_written_reads_the_same(tmp_path: Path) -> None:
    paragraphs = read_squad(write(tmp_path, TREE))
    assert read_squad(write(tmp_path, write_squad(paragraphs))) == paragraphs


PARAGRAPH = ("data", 0, "paragraphs", 0)
QUESTION = (*PARAGRAPH, "qas", 0)
ANSWER = (*QUESTION, "answers", 0)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("data",), {}, "the file: 'data' is missing or not a list"),
        (("data",), [], "no questions"),
        (("data", 0), 3, r"data\[0\]: 'paragraphs' is missing"),
        ((*PARAGRAPH, "context"), 3, r"data\[0\].paragraphs\[0\]: 'context' is missing or not a string"),
        ((*QUESTION, "id"), 7, r"qas\[0\]: 'id' is missing"),
        ((*QUESTION, "id"), "b", r"qas\[1\]: duplicate question id 'b'"),
        ((*QUESTION, "is_impossible"), True, "'is_impossible' is true, but the question has answers"),
        ((*QUESTION, "is_impossible"), "no", "'is_impossible' is missing or not true or false"),
        ((*ANSWER, "answer_start"), True, r"answers\[0\]: 'answer_start' is missing or not an integer"),
        ((*ANSWER, "answer_start"), 12, "the context at character 12 is '08 points ', not '308 points'"),
        (ANSWER, {"text": "1990", "answer_start": -5}, "at character -5"),
        ((*ANSWER, "text"), "", "the answer is empty"),
    ],
)
def test_faults_are_named_with_their_place(tmp_path: Path, place: tuple[Any, ...], value: Any, said: str) -> None:
    tree = copy.deepcopy(TREE)
    part: Any = tree
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = value
    with pytest.raises(DataError, match=said) as caught:
        read_squad(write(tmp_path, tree))
    assert caught.value.help and caught.value.where


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (("data", 0, "title"), r"^data\[0\]: 'title' contains U\+D83D"),
        ((*PARAGRAPH, "context"), r"^data\[0\].paragraphs\[0\]: 'context' contains"),
        ((*QUESTION, "id"), r"^data\[0\].paragraphs\[0\].qas\[0\]: 'id' contains"),
        ((*QUESTION, "question"), r"qas\[0\]: 'question' contains"),
        ((*ANSWER, "text"), r"qas\[0\].answers\[0\]: 'text' contains"),
    ],
)
def test_half_a_character_is_refused_with_its_place(tmp_path: Path, place: tuple[Any, ...], said: str) -> None:
    """JSON can write it, UTF-8 cannot."""
    tree = copy.deepcopy(TREE)
    part: Any = tree
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] += "\ud83d!"
    path = write(tmp_path, tree)
    with pytest.raises(DataError, match=said) as caught:
        read_squad(path)
    assert caught.value.where == str(path) and "U+FFFD" in str(caught.value.help)
    part[place[-1]] = part[place[-1]].replace("\ud83d", "😀")  # two halves that belong together
    assert "\\ud83d\\ude00" in json.dumps(tree)
    if place != (*ANSWER, "text"):
        read_squad(write(tmp_path, tree))


def test_halves_of_characters_are_found_and_mended() -> None:
    assert lone_surrogate("a 😀 b") is None and lone_surrogate("a\udc00\ud800") == "U+DC00"
    assert mend_surrogates("a\udc00😀\ud800") == "a\ufffd😀\ufffd"


def test_what_is_no_json_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, '{"data": [\n1,]\n}')
    with pytest.raises(DataError, match="invalid JSON") as caught:
        read_squad(path)
    assert caught.value.where == f"{path}:2"
    path.write_bytes(b'{"data":\n"\xff"}')
    with pytest.raises(DataError, match=r"0xFF is not UTF-8 \(byte 2 of the line\)") as caught:
        read_squad(path)
    assert caught.value.where == f"{path}:2"
    with pytest.raises(DataError, match="duplicate key"):
        read_squad(write(tmp_path, '{"data": [], "data": []}'))


def test_parts_share_no_context_and_do_not_depend_on_the_order(tmp_path: Path) -> None:
    def paragraph(n: int) -> dict[str, Any]:  # of each context there are two
        return {"context": f"context {n // 2}", "qas": [{"id": str(n), "question": "?", "answers": []}]}

    given = [{"title": str(n), "paragraphs": [paragraph(n)]} for n in range(200)]
    paragraphs = read_squad(write(tmp_path, {"data": given}))
    parts = split_paragraphs(paragraphs, (0.8, 0.1, 0.1), seed=3)
    assert [len(part) for part in parts] == [160, 20, 20]
    contexts = [{one.context for one in part} for part in parts]
    assert sum(map(len, contexts)) == len(set.union(*contexts)) == 100
    backwards = split_paragraphs(paragraphs[::-1], (0.8, 0.1, 0.1), seed=3)
    assert [part[::-1] for part in backwards] == parts
    assert split_paragraphs(paragraphs, (0.8, 0.1, 0.1), seed=4) != parts
    with pytest.raises(ValueError, match="whole"):
        split_paragraphs(paragraphs, (0.5, 0.4), seed=1)
