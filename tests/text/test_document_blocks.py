"""Documents of raw text: nothing lost, nothing joined that belongs apart, for both shapes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from attnkit.text import documents as blocks
from attnkit.text.documents import detect_document_format, join_blocks, read_documents


def text(folder: Path, *lines: str) -> Path:
    (folder / "text").write_text("".join(line + "\n" for line in lines))
    return folder / "text"


def test_lines_are_documents_but_for_blank_ones(tmp_path: Path) -> None:
    path = text(tmp_path, "", "one  two ", "\t", "three", " ")
    assert list(read_documents(path, "lines")) == ["one  two ", "three"]
    assert list(read_documents(path, "blocks")) == ["one  two", "three"]


@pytest.mark.parametrize(
    ("lines", "shape"),
    [
        (["a", "b", "c"], "lines"),
        (["a", "b", "", "c"], "blocks"),
        (["", "", "a", "b", "c", "", ""], "lines"),  # before the first and behind the last nothing is divided
        (["a", " \t ", "c"], "blocks"),
        (["a"] * 199 + ["", "b"], "blocks"),
        (["a"] * 200 + ["", "b"], "lines"),  # a blank line that somebody left there
        ([""] * 5, "lines"),
    ],
)
def test_blank_lines_between_others_make_blocks(tmp_path: Path, lines: list[str], shape: str) -> None:
    assert detect_document_format(text(tmp_path, *lines)) == shape


def test_blocks_hold_every_word_once_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(1)
    lines = [" ".join(drawn.choices("abc", k=drawn.randint(0, 5))) for _ in range(300)]
    whole = list(join_blocks(lines))
    expected = "\n".join(line for line in lines).split("\n\n")
    assert whole == [" ".join(block.split()) for block in expected if block.strip()]
    monkeypatch.setattr(blocks, "MAX_DOCUMENT_LENGTH", 12)
    pieces = list(join_blocks(lines))
    assert max(map(len, pieces)) <= 12 and len(pieces) > len(whole)
    assert " ".join(pieces).split() == " ".join(whole).split()
