"""The pages of figures: every file of ``benchmarks/results`` as tables, with the command that measured it."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
MAX_DEPTH = 4
MAX_COLUMNS = 12
"""A table with more columns is written as one row per value."""


def scripts() -> dict[str, Path]:
    """Return file name of the figures → the script that writes it, as ``docs/benchmarks/README.md`` lists them."""
    found = {}
    for row in (ROOT / "docs" / "benchmarks" / "README.md").read_text(encoding="utf-8").splitlines():
        script = re.match(r"\| `(benchmarks/\w+\.py)`", row)
        for name in re.findall(r"`benchmarks/results/([\w-]+\.json)`", row) if script else []:
            found[name] = ROOT / script[1]
    for path in RESULTS.glob("*.json"):
        stem = path.stem.split("-")[0]
        candidate = ROOT / "benchmarks" / f"{path.stem.replace('-', '_')}.py"
        script_path = candidate if candidate.exists() else ROOT / "benchmarks" / f"{stem}.py"
        if path.name not in found and script_path.exists():
            found[path.name] = script_path
    return found


def provenance(path: Path) -> str:
    """Return when the figures were last changed, by git; nothing outside a repository."""
    command = ["git", "log", "-1", "--format=%h, %cs", "--", str(path)]
    try:
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip()


def pages() -> dict[str, str]:
    """Return file name → text of a page per file of figures, and of the index."""
    written = scripts()
    texts = {f"{path.stem}.md": page(path, written.get(path.name)) for path in sorted(RESULTS.glob("*.json"))}
    rows = [f"| [{name.removesuffix('.md')}]({name}) | {_purpose(text)} |" for name, text in texts.items()]
    head = ["# All figures", "Every file of `benchmarks/results`, as the scripts wrote it."]
    table = ["| figures | question |", "|---|---|", *rows]
    return {"index.md": "\n\n".join([*head, "\n".join(table)]) + "\n", **texts}


def _purpose(text: str) -> str:
    return text.split("\n\n")[1].replace("\n", " ").replace("|", "&#124;")


def page(path: Path, script: Path | None) -> str:
    """Return the page of one file."""
    figures = json.loads(path.read_text(encoding="utf-8"))
    said = (ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or "") if script else ""
    command = re.search(r"^ {4}(PYTHONPATH=\S+ .+|python .+)$", said, re.MULTILINE)
    facts = [f"| figures | `{path.relative_to(ROOT)}` |"]
    if script is not None:
        facts.append(f"| script | `{script.relative_to(ROOT)}` |")
    if command:
        facts.append(f"| command | `{command[1].replace('|', chr(92) + '|')}` |")
    if recorded := provenance(path):
        facts.append(f"| commit and date of the figures | {recorded} |")
    machines = dict.fromkeys(_machines(figures))
    facts.append(f"| machine | {'; '.join(machines) or 'not recorded in the file'} |")
    purpose = said.split("\n\n")[0].replace("\n", " ") or "Figures of an earlier script."
    parts = [f"# Figures: {path.stem}", purpose, "| | |\n|---|---|\n" + "\n".join(facts)]
    return "\n\n".join([*parts, *tables(figures, 2)]) + "\n"


def _machines(value: Any) -> Iterator[str]:
    """Yield each machine that the figures name, as one line."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "machine":
                facts = inner.items() if isinstance(inner, dict) else [("", inner)]
                yield ", ".join(f"{name}: {_text(fact)}".lstrip(": ") for name, fact in facts if name != "load average")
            else:
                yield from _machines(inner)


def tables(value: Any, level: int, title: str = "") -> Iterator[str]:
    """Yield headings and tables of nested figures; what is deeper than ``MAX_DEPTH`` becomes names with points."""
    if isinstance(value, list):
        value = {str(index + 1): inner for index, inner in enumerate(value)}
    if not isinstance(value, dict):
        value = {title: value}
    if _is_matrix(value):
        yield _matrix(value)
        return
    plain = {key: inner for key, inner in value.items() if not _is_nested(inner)}
    if plain:
        yield _pairs(plain)
    for key, inner in value.items():
        if key == "machine" or not _is_nested(inner):
            continue
        if level > MAX_DEPTH:
            yield f"**{_cell(key)}**"
            yield _pairs(_flat(inner))
        else:
            yield f"{'#' * level} {_heading(key)}"
            yield from tables(inner, level + 1, key)


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(part, dict | list) for part in value))


def _is_matrix(value: dict[str, Any]) -> bool:
    """Tell whether each value is a mapping with the same few kinds of figures, so that rows and columns suit."""
    rows = list(value.values())
    if len(rows) < 2 or not all(isinstance(row, dict) and row for row in rows):
        return False
    columns = {key for row in rows for key in _flat(row)}
    return len(columns) <= MAX_COLUMNS


def _matrix(value: dict[str, Any]) -> str:
    flat = {name: _flat(row) for name, row in value.items()}
    columns = list(dict.fromkeys(key for row in flat.values() for key in row))
    head = "| | " + " | ".join(map(_cell, columns)) + " |\n|---|" + "---|" * len(columns)
    rows = [
        f"| {_cell(name)} | " + " | ".join(_text(row.get(key, "")) for key in columns) + " |"
        for name, row in flat.items()
    ]
    return "\n".join([head, *rows])


def _pairs(value: dict[str, Any]) -> str:
    return "| figure | value |\n|---|---|\n" + "\n".join(
        f"| {_cell(key)} | {_text(inner)} |" for key, inner in value.items()
    )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return name with points → value; lists of plain values stay whole."""
    if not _is_nested(value):
        return {prefix: value}
    items = value.items() if isinstance(value, dict) else ((str(n + 1), part) for n, part in enumerate(value))
    return {
        name: inner
        for key, part in items
        if key != "machine"
        for name, inner in _flat(part, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def _text(value: Any) -> str:
    """Return a value of a cell: five significant digits, thousands with commas."""
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, dict):
        return _cell(json.dumps(value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.5g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 1e4 else str(value)
    return _cell(value)


def _heading(text: str) -> str:
    return re.sub(r"([*_`<\[\]])", r"\\\1", text.replace("|", "/"))


def _cell(text: Any) -> str:
    escaped = re.sub(r"([*_`<\[\]$])", r"\\\1", " ".join(str(text).split()))
    return escaped.replace("|", "&#124;")
