"""The lecture: the frame of its pages, the same content in both languages, and every solution run."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package

from shown_blocks import BLOCK, NUMBER, blocks_to_run, run_block, text_of, unknown_formulas, without_blocks

LECTURE = Path(__file__).parents[1] / "docs" / "lecture"
ENGLISH, CHINESE = (sorted((LECTURE / language).glob("*.md")) for language in ("en", "zh"))
FRAME = {
    "en": ("**You will know**", "**Time:**", ["Exercises", "Solutions", "References"]),
    "zh": ("**你将学会**", "**时间：**", ["练习", "解答", "参考文献"]),
}
# Pages whose blocks take ten seconds: they run in ``make slow``.
LONG = ("01-words", "02-language-models", "06-alignment-functions", "07-self-attention", "09-bert-and-gpt", "10-beyond")
HAN = re.compile(r"[\u4e00-\u9fff]")


def name(page: Path) -> str:
    return f"{page.parent.name}/{page.stem}"


def section(text: str, heading: str) -> str:
    return re.split(rf"^## {heading}\n", text, flags=re.MULTILINE)[1].split("\n## ")[0]


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=name(page), marks=[pytest.mark.slow] * (page.stem in LONG)) for page in ENGLISH]
)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks_to_run(text_of(page)):
        run_block(block, names, page.name)


@pytest.mark.parametrize("page", [*ENGLISH, *CHINESE], ids=name)
def test_a_page_has_the_frame(page: Path) -> None:
    text = without_blocks(text_of(page))
    know, time, last = FRAME[page.parent.name]
    assert re.match(rf"# .+\n\n[^\n#]+(?:\n[^\n]+)*\n\n{re.escape(know)}\n\n(?:- .+\n(?:  .+\n)*){{3,5}}\n", text)
    assert re.search(rf"^{re.escape(time)} \d+", text, re.MULTILINE)
    other = "zh" if page.parent.name == "en" else "en"
    assert f"](../{other}/{page.name})" in text.split("\n## ")[0]
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[-3:] == last
    exercises, solutions, references = (section(text, heading) for heading in last)
    numbers = re.findall(r"^(\d)\. ", exercises, re.MULTILINE)
    assert numbers == [str(n) for n in range(1, len(numbers) + 1)]
    assert 4 <= len(numbers) <= 6
    assert re.findall(r"^### .*?(\d)", solutions, re.MULTILINE) == numbers
    assert len(re.findall(r"^- .+\b(?:19|20)\d\d\b", references, re.MULTILINE)) >= 3


@pytest.mark.parametrize("page", [*ENGLISH, *CHINESE], ids=name)
def test_every_solution_has_a_block_that_is_compared(page: Path) -> None:
    text = text_of(page)
    solutions = section(text, FRAME[page.parent.name][2][1]).split("\n### ")[1:]
    shown = [any(block.shown for block in blocks_to_run(solution)) for solution in solutions]
    assert shown and all(shown)
    assert len(re.findall(r"^```text", text, re.MULTILINE)) == sum(b.shown is not None for b in blocks_to_run(text))


def structure(code: str) -> str:
    """Return a Python block without its comments, and with empty strings."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node.value = ""
        if isinstance(node, ast.JoinedStr):
            node.values = [value for value in node.values if isinstance(value, ast.FormattedValue)]
    return ast.dump(tree)


def commands(code: str) -> str:
    return re.sub(r"^#.*\n", "", code, flags=re.MULTILINE)


def formulas(text: str) -> tuple[list[str], set[str]]:
    """Return displayed formulas, in order, and those within sentences; words in them are left out."""
    text = re.sub(r"`[^`\n]+`", "", without_blocks(text))
    text = re.sub(r"\\text\{[^}]*\}", "", text)
    displayed = re.findall(r"^\$\$\n(.+?)\n\$\$$", text, re.DOTALL | re.MULTILINE)
    inline = re.sub(r"^\$\$\n.+?\n\$\$$", "", text, flags=re.DOTALL | re.MULTILINE)
    return displayed, set(re.findall(r"\$([^$\n]+)\$", inline))


@pytest.mark.parametrize("page", [*ENGLISH, *CHINESE, LECTURE / "README.md"], ids=name)
def test_the_site_knows_every_command_of_the_formulas(page: Path) -> None:
    assert unknown_formulas(text_of(page)) == []


@pytest.mark.parametrize("page", CHINESE, ids=name)
def test_both_languages_have_the_same_content(page: Path) -> None:
    text, english = text_of(page), text_of(LECTURE / "en" / page.name)
    assert [len(mark) for mark in re.findall(r"^(#+) ", without_blocks(text), re.MULTILINE)] == [
        len(mark) for mark in re.findall(r"^(#+) ", without_blocks(english), re.MULTILINE)
    ]
    assert formulas(text) == formulas(english)
    ours, theirs = [list(BLOCK.finditer(version)) for version in (text, english)]
    assert [found["kind"] for found in ours] == [found["kind"] for found in theirs]
    for found, other in zip(ours, theirs, strict=True):
        same = structure if found["kind"] == "python" else commands
        assert same(found["code"]) == same(other["code"])
        assert found["how"] == other["how"]
        assert NUMBER.findall(found["shown"] or "") == NUMBER.findall(other["shown"] or "")
    links = r"\]\(((?!\.\./[ez][nh]/)[^)#]+)"  # to the page in the other language: each its own
    assert re.findall(links, text) == re.findall(links, english)


@pytest.mark.parametrize("page", CHINESE, ids=name)
def test_chinese_pages_are_chinese(page: Path) -> None:
    for paragraph in without_blocks(text_of(page)).split("## 参考文献")[0].split("\n\n"):
        if len(re.findall(r"[A-Za-z]{3,} [A-Za-z]{3,} [A-Za-z]{3,} [A-Za-z]{3,}", paragraph)) > 1:
            assert HAN.search(paragraph), paragraph
    assert len(HAN.findall(text_of(page))) > 1000


def test_the_index_lists_every_page_in_its_order() -> None:
    index = text_of(LECTURE / "README.md")
    assert [page.name for page in ENGLISH] == [page.name for page in CHINESE]
    assert [page.name[:2] for page in ENGLISH] == [f"{number:02}" for number in range(1, 11)]
    for language, pages in (("en", ENGLISH), ("zh", CHINESE)):
        assert re.findall(rf"\]\(({language}/[\w-]+\.md)\)", index) == [f"{language}/{page.name}" for page in pages]
    assert re.findall(r"^\| (\d+) \|", index, re.MULTILINE) == [str(n) for n in range(1, 11)]
