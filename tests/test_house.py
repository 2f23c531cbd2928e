"""The house rules that can be read off the sources: imports run down, torch stays out of the torch-free rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[1] / "src" / "attnkit"
FLOORS = [
    {"errors"},
    {"files"},
    {"models", "kernels", "training", "decoding", "metrics", "views", "console"},
    {"interop", "text", "runtime", "config"},
    {"data", "runs"},
    {"tasks"},
    {"commands"},
    {"cli", "__init__"},
    {"__main__"},
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCES).parts
    return parts[0] if len(parts) > 1 else path.stem


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms that a file imports, inside functions too, save for type checking alone."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    rooms = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        names = []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        rooms |= {name.split(".")[1] for name in names if name.startswith("attnkit.")}
    return rooms


@pytest.mark.parametrize("path", sorted(SOURCES.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCES)))
def test_imports_run_down(path: Path) -> None:
    here = room_of(path)
    assert here in FLOOR, f"{here} is no room of the design"
    for room in imported_rooms(path) & set(FLOOR) - {here, "__init__"}:
        assert FLOOR[room] < FLOOR[here], f"{here} must not import {room}"


def test_torch_free_rooms_stay_free() -> None:
    free = ["cli", "console", "config", "files", "errors", "runs.launch", "tasks.config", "tasks.presets"]
    for room in ("text", "metrics", "views", "commands"):
        free += [".".join(p.relative_to(SOURCES).with_suffix("").parts) for p in (SOURCES / room).rglob("*.py")]
    free += [f"{room}.config" for room in ("data", "models", "training", "decoding", "text")]
    modules = [f"attnkit.{name.removesuffix('.__init__')}" for name in free]
    code = f"import sys, importlib\nfor m in {modules!r}: importlib.import_module(m)\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_forbidden_calls_are_absent() -> None:
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "pickle" not in {alias.name for alias in node.names}, path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("torch.load", "torch.save", "eval", "exec", "yaml.load_all"), f"{path}: {called}"


def test_writes_go_through_files() -> None:
    """Nobody but files.py opens for writing; the run-time proof over every command is a later issue's."""
    for path in SOURCES.rglob("*.py"):
        if path.name == "files.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func).split(".")[-1]
                assert called not in ("write_text", "write_bytes") or "files" in path.read_text(), path
                text = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                writes = called == "open" and any(mode in text for mode in ("w", "wb", "a", "ab", "r+", "x"))
                assert not writes or "devnull" in ast.unparse(node.func), path
