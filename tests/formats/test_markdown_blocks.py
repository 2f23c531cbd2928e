"""Blocks of Markdown: a document of the same text has the same blocks, by an independent parser of CommonMark."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from attnkit.formats.documents import parse_document
from attnkit.formats.markdown import escape, parse_markdown
from attnkit.formats.passages import Passage, render


def passages(text: str) -> list[str]:
    return [piece.text for piece in parse_document(text, "markdown", Path("page")) if isinstance(piece, Passage)]


QUOTED = {
    "On Monday Bob wrote:\n> A dog runs in the snow.\n> Two men sit.\n": [
        "On Monday Bob wrote:",
        "A dog runs in the snow. Two men sit.",
    ],
    "- item\n> quote": ["item", "quote"],
    "1. x\n> y": ["x", "y"],
    "- x\n  > y": ["x", "y"],
    "> a\n>> b": ["a", "b"],
    "> > a\n> b": ["a b"],
    "> a\nb": ["a b"],
    "- > a\n  > b": ["a b"],
    "> - a\n>   b\n> - c": ["a b", "c"],
    "> a\r\n> b\r\n": ["a b"],
    "> a *b\n> c* d": ["a b c d"],
    "> ![a](b)\n> c": ["a", "c"],
    "> a  \n> b": ["a", "b"],
    "> ```\n> a\nb": ["b"],
    "- ```\n  a\n  ```\n  b": ["b"],
    "a\n>     b\n>     c": ["a"],
    "> | a | b |\n> |---|---|\n> | c | d |\ne": ["a", "b", "c", "d", "e"],
    "- | a |\n  |---|\n  | b |": ["a", "b"],
    "- # a\n  b": ["a", "b"],
    "a\n-\n\nb": ["a", "b"],
    "> 1. a\n> 2. b\n>\n> c": ["a", "b", "c"],
}


@pytest.mark.parametrize("text", QUOTED)
def test_quotes_interrupt_paragraphs_and_keep_their_marks(text: str) -> None:
    assert passages(text) == QUOTED[text]
    written = render(parse_markdown(text))
    assert sorted(written.split()) == sorted(text.split())  # lines may be broken at other words
    assert blocks(written) == blocks(text) and written.count(">") == text.count(">")


def test_the_lines_of_a_quote_are_lines_of_its_translation() -> None:
    [passage] = [piece for piece in parse_markdown("> one\n> two `x`\n> three") if isinstance(piece, Passage)]
    assert passage.breaks == ("\n> ", "\n> ")
    translated = Passage(["eins 2. - zwei # x drei vier"], passage.escape, passage.breaks)
    assert translated.render() == "eins 2. -\n> zwei # x\n> drei vier"  # no line begins with a number or a mark
    assert Passage(["eins"], passage.escape, passage.breaks).render() == "eins"


def test_text_that_looks_like_a_mark_is_escaped() -> None:
    marks = ["- a", "+ a", "> a", "# a", "1. a", "2) a", "-", "---", "~~~ a", "1.", "* a"]
    for text in marks:
        assert [token.type for token in MarkdownIt().parse(escape(text))] == [
            "paragraph_open",
            "inline",
            "paragraph_close",
        ]
        assert MarkdownIt().parse(escape(text))[1].children[0].content == text  # type: ignore[index]
    for text in ("-5 °C", "1.5 km", "#tag", "a - b", "3-4", "--json"):
        assert escape(text) == text


MARKS = ["> ", ">", ">> ", "> > ", "  > ", "- ", "* ", "1. ", "2) ", "3. ", "  ", "# ", "- > ", "> - ", "  - ", "10. "]
TEXTS = ["A dog runs", "in *the* snow", "two `men` sit", "c", "[a](b)", "![a](b)", "Mr. 5 \\- 6", "\\> y"]
LINES = ["", "---", "***", "- ", "1.", "#", ">", "text  ", "2024. Er", "===", "-", "# x #", "```", "    code"]


def draw_document(rng: random.Random) -> str:
    lines = []
    for _ in range(rng.randint(1, 7)):
        marks = "".join(rng.choices(MARKS, k=rng.choice([0, 0, 1, 1, 2, 3])))
        lines.append(marks + rng.choice(TEXTS if rng.random() < 0.6 else LINES))
    return "\n".join(lines)


def blocks(text: str) -> list[tuple[str, str, object]]:
    """Return the blocks of a document and their texts, line breaks as spaces."""
    found: list[tuple[str, str, object]] = []
    for token in MarkdownIt("commonmark").parse(text):
        inside = [
            " " if one.type == "softbreak" else one.content if one.type in ("text", "code_inline") else f"<{one.type}>"
            for one in token.children or ()
        ]
        content = " ".join("".join(inside).split()) if token.type == "inline" else token.content
        found.append((token.type, content, token.attrs.get("start")))
    return found


def test_documents_of_chance_keep_their_blocks_and_marks() -> None:
    """Quotes, lists, headings and code in one another: as many marks of quotes, and the blocks that CommonMark has."""
    rng, n_quotes = random.Random(21), 0
    for _ in range(3000):
        text = draw_document(rng)
        written = render(parse_markdown(text))
        n_quotes += text.count(">")
        assert written.count(">") == text.count(">"), text
        assert blocks(written) == blocks(text), text
    assert n_quotes > 5000


@pytest.mark.parametrize(
    "line", ["> " * 60 + "x", "> - " * 30 + "x", " " * 500 + "x", "- " * 60 + "x", "1. " * 60 + "*"]
)
def test_deep_quotes_and_lists_take_linear_time(line: str) -> None:
    began = time.process_time()
    assert re.sub(r"\s", "", render(parse_markdown(f"{line}\n{line}\n"))) == re.sub(r"\s", "", f"{line}{line}")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "line", ["> a dog runs\n", "> ![a](b) c\n", "a dog\n", "> ```\n- ```\n", "> | a\n", "- a\n  > b\n"]
)
def test_long_paragraphs_take_linear_time(line: str) -> None:
    def seconds(n: int) -> float:
        began = time.process_time()
        render(parse_markdown(line * n))
        return time.process_time() - began

    seconds(100)
    assert seconds(10_000) < 30 * seconds(1000) + 0.5  # quadratic would be 100 times
