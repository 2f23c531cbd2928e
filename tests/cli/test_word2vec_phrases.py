"""``attnkit word2vec phrases`` from text to text."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    rng = random.Random(2)
    lines = [f"w{rng.randrange(60)} new york w{rng.randrange(60)} city  of\tlondon" for _ in range(200)]
    (tmp_path / "a.txt").write_text("\n".join([*lines, "", "New York", "new", "york"]))
    return tmp_path / "a.txt"


def joined(path: Path) -> list[str]:
    lines = [" ".join(line.split()) for line in path.read_text().split("\n")]
    return [line.replace("new york", "new_york").replace("city of london", "city_of_london") for line in lines]


@pytest.mark.parametrize("at_once", [1, 3, 1 << 18])
def test_words_are_joined_line_by_line(
    call: Call, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr("attnkit.data.word_ids._AT_ONCE", at_once)
    flags = ("--threshold", 5, "--connector", "of")
    code, out, err = call("word2vec", "phrases", text, *flags)
    assert (code, out) == (0, "\n".join(joined(text)) + "\n")
    assert "1,404 words became 804" in err and "city_of_london" in err and max(map(len, err.splitlines())) < 80
    code, report, _ = call(
        "word2vec", "phrases", text, *flags, "-o", tmp_path / "o", "--save", tmp_path / "p", "--json"
    )
    assert (tmp_path / "o").read_text() == out
    told = json.loads(report)
    assert (told["words_read"], told["words_written"], told["phrases"]) == (1404, 804, [2])
    saved = (tmp_path / "p").read_text().splitlines()
    assert saved[0].startswith("# attnkit phrases 1 {") and [line.split("\t")[3] for line in saved[1:]] == [
        "city of london",
        "new york",
    ]


def test_saved_phrases_are_joined_in_other_text(
    call: Call, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--threshold", 5, "--connector", "of", "-o", tmp_path / "o", "--save", tmp_path / "p")
    assert call("word2vec", "phrases", text, *flags)[0] == 0
    other = "from new york to the city of london\n\ncity of\nlondon new new york of york\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(other.encode())))
    code, out, _ = call("word2vec", "phrases", "-", "--with", tmp_path / "p")
    assert code == 0
    assert out == "from new_york to the city_of_london\n\ncity of\nlondon new new_york of york\n"


@pytest.mark.parametrize(
    ("flags", "code", "text_of_error"),
    [
        (["--passes", "11"], 2, "--passes"),
        (["--joiner", " "], 2, "white space"),
        (["--max-pairs", "3"], 2, "--max-pairs"),
        (["--json"], 2, "standard output"),
        (["--with", "p.tsv", "--passes", "2"], 2, "--with"),
        (["--with", "missing.tsv"], 4, "missing.tsv"),
        (["-o", "a.txt"], 2, "also an input file"),
        (["missing.txt"], 2, "no such file: missing.txt"),
        (["bad.txt"], 3, "bad.txt:2"),
        (["empty.txt"], 0, ""),
    ],
)
def test_what_cannot_be_done_is_said(
    call: Call,
    text: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[Any],
    code: int,
    text_of_error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.txt").write_bytes(b"a b\n\xff\n")
    (tmp_path / "empty.txt").write_bytes(b"")
    before = text.read_bytes()
    found, _, err = call("word2vec", "phrases", "a.txt", *flags)
    assert found == code and text_of_error in err
    assert text.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "bad.txt", "empty.txt"]


def test_a_reader_that_goes_away_is_no_failure(text: Path) -> None:
    """As with ``| head``: nothing is said of the disk, where the words lie that are still to be written."""
    text.write_text("new york is a city\n" * 50_000)
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "attnkit", "word2vec", "phrases", text]
    ended = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert ended.returncode in (0, 141) and "error" not in ended.stderr, ended.stderr
