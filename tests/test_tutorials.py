"""The tutorials, run as their readers would run them; the comparison of shown output itself."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package

from shown_blocks import Block, agrees, blocks_to_run, lines_of, run_block

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
PAGES = sorted(path for path in TUTORIALS.glob("*.md") if path.name != "README.md")

# Pages that train for a minute or more: their blocks run in ``make slow``.
TRAINS = ("first-translator", "own-files", "reversal", "bert", "gpt", "comparing-systems", "several-processes")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def follow(page: Path, folder: Path) -> None:
    """Do what a page says, in a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        names: dict[str, object] = {"__name__": "page"}
        for block in blocks_to_run(text_of(page)):
            run_block(block, names, page.name)


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in TRAINS)) for page in PAGES]
)
def test_a_tutorial_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_says_what_it_is_for_and_ends_with_exercises(page: Path) -> None:
    text = text_of(page)
    assert re.match(r"# .+\n\n[^\n#]+", text)
    assert re.search(r"^\*\*At the end you have\*\* .+", text, re.MULTILINE)
    assert re.search(r"^\*\*Time:\*\* .+ minutes", text, re.MULTILINE)
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert headings[-2:] == ["Exercises", "Where to go next"]
    assert len(re.findall(r"^\d\. ", text.split("## Exercises")[1], re.MULTILINE)) >= 2


def test_the_index_lists_every_tutorial_in_its_order() -> None:
    listed = re.findall(r"^\| \d+ \| \[[^\]]+\]\(([\w-]+\.md)\)", text_of(TUTORIALS / "README.md"), re.MULTILINE)
    assert sorted(listed) == [page.name for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_tutorial_shows_stands_behind_the_block_that_printed_it(page: Path) -> None:
    text = text_of(page)
    assert len(re.findall(r"^```text", text, re.MULTILINE)) == sum(b.shown is not None for b in blocks_to_run(text))


def block(shown: str, percent: float = 0.0, half: bool = False, **how: bool) -> Block:
    return Block("sh", "", shown, percent, half, **how)


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        (block("a 1\nb\n"), "a 1\nb\n", True),
        (block("a 1\n"), "a 2\n", False),
        (block("a\n"), "a\nb\n", False),
        (block("a\n…\n"), "a\nb\nc\n", True),
        (block("…\na\n"), "a\n", True),
        (block("…\na\n…\nb\n"), "x\na\nb\nb\n", True),
        (block("…\nb\n…\na\n"), "a\nb\n", False),
        (block("took … s\n"), "took 3.2 s\n", True),
        (block("took … s\n"), "took 3.2 m\n", False),
        (block("BLEU 40.0\n", 10), "BLEU 43.9\n", True),
        (block("BLEU 40.0\n", 10), "BLEU 44.1\n", False),
        (block("1,000  lines\n", 10), "950    lines\n", True),
        (block("x -0.50\n", 10), "x 0.50\n", False),
        (block("step-12\n", 10), "step-13\n", False),
        (block("a\nb\nc\n…\n", half=True), "x\na\nc\n", True),
        (block("a\nb\nc\n…\n", half=True), "c\nx\n", False),
        (block("a  9  .\nb .  1\n", words_only=True), "a  8  2\nb . 1\n", True),
        (block("a  9  .\nb .  1\n", words_only=True), "a  9  .\nc .  1\n", False),
        (block("a  9\n", words_only=True), "a  9\na  9\n", False),
        (block("The cat is old.\n", first_words=True), "The cats sleep.\n", True),
        (block("The cat is old.\n", first_words=True), "A cat is old.\n", False),
        (block("The cat is old.\n", first_words=True), "The cats sleep.\n\n", True),
        (block("The cat is old.\n", first_words=True), "The cats sleep.\nThe\n", False),
    ],
)
def test_comparison_of_shown_output(shown: Block, printed: str, expected: bool) -> None:
    assert agrees(shown, printed) is expected


def test_blocks_are_found_with_what_they_print() -> None:
    page = "```sh run\na \\\n  b\n# c\n\nd\n```\n\n```text within 5 percent\n1\n```\n\n```python run\nx\n```\n\nText.\n"
    first, second = blocks_to_run(page)
    assert lines_of(first.code) == ["a b", "d"]
    assert first == Block("sh", "a \\\n  b\n# c\n\nd\n", "1\n", 5.0, False)
    assert second == Block("python", "x\n", None, 0.0, False)
