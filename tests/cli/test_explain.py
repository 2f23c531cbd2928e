"""``attnkit explain``: what is printed and drawn, at 80 columns, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len

from attnkit.progress import console

TOPICS = {
    "mask": ["mask"],
    "window": ["mask", "--pattern", "window", "--size", "2", "--causal"],
    "strided": ["mask", "--pattern", "strided"],
    "block": ["mask", "--pattern", "block", "--size", "4"],
    "global": ["mask", "--pattern", "global", "--size", "1", "--global", "2"],
    "positions": ["positions"],
    "pooling": ["pooling"],
}
HOSTILE = '<script>alert(1)</script> \x1b[31mred & "wide" 日本語の単語 \u202eback'


@pytest.mark.parametrize("topic", TOPICS)
def test_lessons_fit_80_columns_and_are_ascii_where_piped(call: Any, topic: str) -> None:
    code, out, err = call("explain", *TOPICS[topic])
    assert (code, err) == (0, "")
    assert out.isascii() and "\x1b" not in out
    assert all(len(line) <= 80 and line == line.rstrip() for line in out.splitlines())


@pytest.mark.parametrize("topic", TOPICS)
def test_colour_adds_colours_and_nothing_else(call: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = call("explain", *TOPICS[topic])[1]
    monkeypatch.setattr(console, "supports_color", lambda: True)
    coloured = call("explain", *TOPICS[topic])[1]
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == plain != coloured


def test_the_causal_mask_is_drawn(call: Any) -> None:
    out = call("explain", "mask", "--words", "a dog runs")[1]
    assert "\n   1 a     #  .  .\n   2 dog   #  #  .\n   3 runs  #  #  #\n" in out
    assert "  a    100   .   .\n  dog   50  50   .\n  runs  33  33  33\n" in out
    assert "Each row sums to 100, up to rounding: " in out


def test_a_pattern_is_drawn_and_counted(call: Any) -> None:
    out = call("explain", "mask", "--pattern", "window", "--size", "1", "--words", "a b c d")[1]
    rows = [line.split()[2:] for line in out.splitlines() if re.match(r"   \d [a-d]", line)]
    assert rows == [list("##.."), list("###."), list(".###"), list("..##")]
    assert re.search(r"^ +4 +16 +10 +62\.50%$", out, re.MULTILINE)
    assert re.search(r"^ +4,096 +16,777,216 +12,286 +0\.07%$", out, re.MULTILINE)  # 3 n - 2


def test_json_holds_the_numbers(call: Any) -> None:
    mask = json.loads(call("explain", "mask", "--words", "a b", "--json")[1])
    assert mask["mask"] == [[True, False], [True, True]] and mask["weights"] == [[1.0, 0.0], [0.5, 0.5]]
    positions = json.loads(call("explain", "positions", "--shift", "2", "--json")[1])
    assert positions["shift"] == 2 and len(positions["matrix"]) == 8
    pooling = json.loads(call("explain", "pooling", "--seed", "4", "--json")[1])
    assert [curve["name"] for curve in pooling["curves"]] == ["points", "true curve", "w = 1", "w learned"]
    assert pooling != json.loads(call("explain", "pooling", "--seed", "5", "--json")[1])


@pytest.mark.sample(3)
@pytest.mark.parametrize("topic", TOPICS)
def test_pictures_are_whole_and_fetch_nothing(call: Any, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "picture.svg"
    code, out, _ = call("explain", *TOPICS[topic], "--svg", path)
    assert code == 0 and out == call("explain", *TOPICS[topic])[1]
    text = path.read_text()
    root = ElementTree.fromstring(text)
    tags = [element.tag.split("}")[1] for element in root.iter()]
    assert not {"script", "foreignObject", "a"} & set(tags) and len(tags) > 30
    links = [value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")]
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    for format, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        assert call("explain", *TOPICS[topic], f"--{format}", tmp_path / "picture")[0] == 0
        assert (tmp_path / "picture").read_bytes().startswith(magic)


def test_the_picture_of_a_mask_has_its_cells(call: Any, tmp_path: Path) -> None:
    call("explain", "mask", "--words", "a b c", "--svg", tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert [text.count(f"fill: {colour}") for colour in ("#0072b2", "#eef1f4")] == [6, 3]


@pytest.mark.parametrize("topic", ["mask", "positions"])
def test_any_word_is_harmless(call: Any, topic: str, tmp_path: Path) -> None:
    code, out, _ = call("explain", topic, "--words", HOSTILE, "--svg", tmp_path / "a.svg")
    assert code == 0 and "\x1b" not in out and "\u202e" not in out
    assert all(cell_len(line) <= 80 for line in out.splitlines())
    tags = {element.tag for element in ElementTree.fromstring((tmp_path / "a.svg").read_text()).iter()}
    assert not any("script" in tag for tag in tags)


@pytest.mark.parametrize(
    ("arguments", "what", "help"),
    [
        (["pooling", "--words", "a b"], "--words cannot be used with pooling", "use it with mask or positions"),
        (["mask", "--shift", "3"], "--shift cannot be used with mask", "use it with positions"),
        (["positions", "--causal"], "--causal cannot be used with positions", "use it with mask"),
        (["mask", "--size", "3"], "require --pattern", "choose one: --pattern window"),
        (["mask", "--pattern", "window", "--global", "2"], "--global requires --pattern global", "--pattern global"),
        (["mask", "--words", "alone"], "a lesson takes 2 to 20 words, not 1", 'such as "a dog runs home"'),
        (["mask", "--words", "a " * 21], "a lesson takes 2 to 20 words, not 21", "such as"),
        (["maks"], "'maks' is not one of", "did you mean mask?"),
    ],
)
def test_what_makes_no_sense_is_refused(call: Any, arguments: list[str], what: str, help: str) -> None:
    code, out, err = call("explain", *arguments)
    assert (code, out) == (2, "") and what in err and f"help: {help}" in err.replace("attnkit ", "")
    assert len(err.splitlines()) <= 3


def test_a_picture_that_cannot_be_written_says_so(call: Any, tmp_path: Path) -> None:
    code, out, err = call("explain", "pooling", "--svg", tmp_path / "missing" / "a.svg")
    assert (code, out) == (5, "") and "cannot write" in err


def test_the_most_words_fit(call: Any) -> None:
    out = call("explain", "mask", "--words", "extraordinarily " * 20)[1]
    assert all(len(line) <= 80 for line in out.splitlines()) and "20 extraordina~" in out
