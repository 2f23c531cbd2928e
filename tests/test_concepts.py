"""The pages of concepts: their blocks print what they show, their formulas are known to the site, papers are named."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the modules beside the tests are no package

from shown_blocks import BLOCK, blocks_to_run, run_block, text_of, unknown_formulas, without_blocks

CONCEPTS = Path(__file__).parents[1] / "docs" / "concepts"
PAGES = sorted(CONCEPTS.glob("*.md"))
WITH_BLOCKS = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]
PICTURE = re.compile(r"!\[[^\]]+\]\(([^)]+)\)")


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
def test_the_site_knows_the_formulas_of_concepts(page: Path) -> None:
    assert unknown_formulas(text_of(page)) == []


def test_figures_of_concepts_are_small() -> None:
    shown = {(CONCEPTS / name).resolve() for page in PAGES for name in PICTURE.findall(text_of(page))}
    own = sorted((CONCEPTS / "figures").iterdir())
    assert own and [path.name for path in own if path.resolve() not in shown or path.stat().st_size > 20_000] == []
