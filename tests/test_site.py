"""The documentation site: it builds without a warning, all its links lead somewhere, and no page needs the network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as ``make docs`` does, which fails on warnings and broken links."""
    folder = tmp_path_factory.mktemp("build")
    command = [sys.executable, "docs/build_site.py", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.mark.slow
def test_every_page_is_on_the_site_and_in_its_search(site: Path) -> None:
    pages = {path.relative_to(ROOT).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert {page for page in pages if not (site / f"{page}.html").exists()} == set()
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))
    assert pages - set(found["docnames"]) == set()


@pytest.mark.slow
def test_every_file_of_figures_has_a_page_with_its_machine(site: Path) -> None:
    for path in (ROOT / "benchmarks" / "results").glob("*.json"):
        page = (site / "docs" / "benchmarks" / "figures" / f"{path.stem}.html").read_text(encoding="utf-8")
        assert path.name in page and "machine" in page


@pytest.mark.slow
def test_models_are_in_the_reference(site: Path) -> None:
    api = site / "docs" / "reference" / "api"
    assert 'id="attnkit.library.training.train"' in (api / "attnkit.library.training.html").read_text(encoding="utf-8")
    assert 'id="attnkit.models.rnn.' in (api / "attnkit.models.rnn.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_formulas_need_no_script(site: Path) -> None:
    formulas = [path for path in DOCS.rglob("*.md") if re.search(r"^\$\$$", path.read_text(encoding="utf-8"), re.M)]
    assert formulas
    for path in formulas:
        page = (site / path.relative_to(ROOT).with_suffix(".html")).read_text(encoding="utf-8")
        assert "<math" in page and "$$" not in page and not re.search(r"<script[^>]*mathjax", page, re.I)


@pytest.mark.slow
def test_broken_links_and_requests_are_found(tmp_path: Path) -> None:
    """What the build would report, in a page made to be wrong."""
    page = '<p id="here"></p><a href="#here"></a><a href="#no"></a><a href="no.html"></a><script src="https://x/y.js"></script>'
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    code = "import sys; sys.path.insert(0, 'docs'); import build_site, pathlib; "
    code += "print(*build_site.broken_links(pathlib.Path(sys.argv[1])), sep='\\n')"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "page.html: no such heading: #no",
        "page.html: no such file: no.html",
        "page.html loads https://x/y.js",
    ]
