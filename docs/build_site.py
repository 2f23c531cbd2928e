"""Build the documentation site in ``build/site``: ``make docs``, or ``python docs/build_site.py [BUILD_DIR]``.

The pages of the repository are mirrored in a folder of their own, so that links between them stay as they are. Pages
that follow from sources are added: figures of benchmarks, the Python interface. Navigation follows the links of the
index pages. Warnings of Sphinx, broken links and anything that a page would load from elsewhere end with code 1.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import api_pages
import benchmark_pages
from sphinx.cmd.build import main as sphinx

ROOT = Path(__file__).resolve().parents[1]
OTHERS = (*(path.name for path in sorted(ROOT.glob("*.md"))), "examples/README.md", "benchmarks/README.md")
"""Pages outside ``docs/`` that its pages link to; LICENSE and the examples are files to download."""
FILES = (
    "LICENSE",
    "examples/*.yaml",
    "examples/notebooks/*.ipynb",
    "examples/serve/*",
    "docs/**/*.png",
    "docs/**/*.svg",
    "docs/reference/schemas/*.json",
    "benchmarks/results/*.svg",
)
LINK = re.compile(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)")
START = """<!doctype html>
<meta charset="utf-8">
<title>attnkit</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
<a href="docs/index.html">Documentation of attnkit</a>
"""


def gather(target: Path) -> None:
    """Write all pages of the site, as Markdown, to ``target``; files that have not changed keep their time."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.glob("docs/**/*.md")}
    texts |= {name: (ROOT / name).read_text(encoding="utf-8") for name in OTHERS}
    texts |= {f"docs/benchmarks/figures/{name}": text for name, text in benchmark_pages.pages().items()}
    texts |= {f"docs/reference/api/{name}": text for name, text in api_pages.pages().items()}
    texts = with_navigation({name: with_tables_of_states(text) for name, text in texts.items()})
    for name, text in texts.items():
        _write(target / name, text.encode())
    for pattern in FILES:
        for path in ROOT.glob(pattern):
            _write(target / path.relative_to(ROOT), path.read_bytes())
    for path in target.rglob("*.md"):
        if path.relative_to(target).as_posix() not in texts:
            path.unlink()


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_bytes() != data:
        path.write_bytes(data)


def with_tables_of_states(text: str) -> str:
    """Return a page whose state diagrams, which a repository's browser draws, are tables: no script draws them here."""

    def table(diagram: re.Match[str]) -> str:
        steps = re.findall(r"^ *(\S+) --> (\S+?)(?:: (.+))?$", diagram[1], re.MULTILINE)
        names = {"[*]": "(start)"}, {"[*]": "(end)"}
        rows = [f"| {names[0].get(a, a)} | {event} | {names[1].get(b, b)} |" for a, b, event in steps]
        return "| state | event | next state |\n|---|---|---|\n" + "\n".join(rows) + "\n"

    return re.sub(r"^```mermaid\nstateDiagram-v2\n(.*?)^```\n", table, text, flags=re.DOTALL | re.MULTILINE)


def with_navigation(texts: dict[str, str]) -> dict[str, str]:
    """Append tables of contents: each section of ``docs/index.md`` is one, and so is each page that lists others."""
    placed = {"docs/index.md"}
    texts = dict(texts)
    for heading, body in _sections(texts["docs/index.md"]):
        texts["docs/index.md"] += _contents("docs/index.md", LINK.findall(body), placed, heading)
    for page, names in _listings(texts):
        texts[page] += _contents(page, names, placed, None)
    return texts


def _sections(text: str) -> Iterator[tuple[str, str]]:
    parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def _listings(texts: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    """Yield pages that list others, with the links: benchmarks, the log, the lecture and the library."""
    for page in ("docs/benchmarks/README.md", "docs/benchmarks/figures/index.md", "docs/log/README.md"):
        yield page, LINK.findall(texts[page])
    yield "docs/benchmarks/README.md", ["figures/index.md"]
    yield "docs/lecture/README.md", sorted(LINK.findall(texts["docs/lecture/README.md"]))  # English pages, then Chinese
    yield "docs/reference/python.md", [f"api/{name.split('/')[-1]}" for name in texts if "/reference/api/" in name]


def _contents(page: str, links: list[str], placed: set[str], caption: str | None) -> str:
    """Return a hidden table of contents of the pages that no other one holds yet."""
    lines = []
    for link in links:
        name = (ROOT / page).parent.joinpath(link).resolve().relative_to(ROOT).as_posix()
        if name not in placed:
            placed.add(name)
            lines.append(f"/{name.removesuffix('.md')}")
    if not lines:
        return ""
    options = [":hidden:", ":titlesonly:", *([f":caption: {caption}"] if caption else [])]
    return "\n\n```{toctree}\n" + "\n".join([*options, "", *lines]) + "\n```\n"


class _Page(HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what an element points at, and what it makes the browser load."""
        values = {key: value or "" for key, value in attrs}
        self.anchors |= {values[key] for key in ("id", "name") if key in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("img", "script", "source", "iframe") and values.get("src"):
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload"):
            self.loaded.append(values["href"])


def broken_links(site: Path) -> list[str]:
    """Return what is wrong: links to files or anchors that do not exist, and what pages would load from elsewhere."""
    pages = {str(path.resolve()): _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    files = {str(path.resolve()) for path in site.rglob("*")}
    wrong = []
    for name, page in pages.items():
        path = Path(name)
        shown = path.relative_to(site.resolve())
        for link in dict.fromkeys([*page.links, *page.loaded]):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                wrong += [f"{path.name} loads {link}"] if link in page.loaded and parts.scheme != "data" else []
                continue
            # Text, not Path.resolve: there are forty thousand links, and no link of the file system in the site.
            target = os.path.normpath(os.path.join(path.parent, unquote(parts.path))) if parts.path else name  # noqa: PTH118
            if target not in files:
                wrong.append(f"{shown}: no such file: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{shown}: no such heading: {link}")
    for path in sorted(site.rglob("*.css")):
        wrong += [
            f"{path.name} loads {url}" for url in re.findall(r"url\([\"']?(https?:[^)]+)", path.read_text("utf-8"))
        ]
    return wrong


def build(build_dir: Path) -> int:
    """Build the site; return 0, or 1 after what is wrong was printed."""
    gc.disable()  # doctrees are millions of small objects: searching them for cycles is a third of the time
    source, site = build_dir / "site-pages", build_dir / "site"
    gather(source)
    arguments = ["-c", str(Path(__file__).parent), "-d", str(build_dir / "site-cache"), str(source), str(site)]
    code = sphinx(["-q", "-b", "html", "-j", "2", "-W", "--keep-going", *arguments])
    if code:
        return code
    (site / "index.html").write_text(START, encoding="utf-8")
    wrong = broken_links(site)
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    if not wrong:
        sys.stderr.write(f"wrote {site / 'index.html'}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build"))
