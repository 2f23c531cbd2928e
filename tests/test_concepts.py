"""The pages of concepts: their blocks print what they show, their formulas are known to the site, papers are named."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package

from shown_blocks import BLOCK, blocks_to_run, run_block

CONCEPTS = Path(__file__).parents[1] / "docs" / "concepts"
PAGES = sorted(CONCEPTS.glob("*.md"))
WITH_BLOCKS = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```\n", "", text, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_a_concept_computes_what_it_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The formulas of a page, written out, against the library: what the blocks print is compared."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks_to_run(text_of(page)):
        run_block(block, names, page.name)


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_every_block_of_a_concept_is_compared(page: Path) -> None:
    text = text_of(page)
    assert all(block.shown for block in blocks_to_run(text))
    assert len(re.findall(r"^```text", text, re.MULTILINE)) == len(list(blocks_to_run(text)))


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: page.stem)
def test_a_concept_ends_with_its_references(page: Path) -> None:
    headings = re.findall(r"^## (.+)$", without_blocks(text_of(page)), re.MULTILINE)
    assert headings[-1] == "References" and len(set(headings)) == len(headings)
    references = text_of(page).split("## References\n\n")[1].splitlines()
    assert len(references) >= 4
    assert [line for line in references if not re.match(r"- [A-Z].+, (19|20)\d\d[ab]?: .+\.$", line)] == []
    years = [int(re.findall(r", ((?:19|20)\d\d)[ab]?: ", line)[0]) for line in references]
    assert years == sorted(years)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_site_knows_the_formulas_of_concepts(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown command, or an unknown table's &, is left in the page as it is written."""
    pytest.importorskip("latex2mathml")
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(CONCEPTS.parent)
    to_mathml = importlib.import_module("mathml").to_mathml
    text = re.sub(r"`[^`\n]+`", "", without_blocks(text_of(page)))
    displayed = re.findall(r"^\$\$\n(.+?)\n\$\$$", text, re.DOTALL | re.MULTILINE)
    inline = re.findall(r"\$([^$\n]+)\$", re.sub(r"^\$\$\n.+?\n\$\$$", "", text, flags=re.DOTALL | re.MULTILINE))
    assert [formula for formula in [*displayed, *inline] if re.search(r"\\|>&<", to_mathml(formula))] == []


def test_figures_of_concepts_are_small() -> None:
    shown = {(CONCEPTS / name).resolve() for page in PAGES for name in PICTURE.findall(text_of(page))}
    own = sorted((CONCEPTS / "figures").iterdir())
    assert own and [path.name for path in own if path.resolve() not in shown or path.stat().st_size > 20_000] == []
