"""The types of the library, as the type checkers of its users see them."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import attnkit

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("user_program.py")
FAULTS = {
    "score: float = translation.score": "score: str = translation.score",
    "seed=1, quiet=True": "seed='1', quiet=True",
    "assert_type(gpt, attnkit.CausalLM)": "assert_type(gpt, attnkit.MaskedLM)",
    'to="huggingface"': 'to="elsewhere"',
}
"""What the checkers must see: types that are Any would let all of these pass."""


def mypy(path: Path) -> str:
    """Check a file in strict mode, with the checker's own settings instead of this project's."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", str(path)]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "src"), "MYPY_CACHE_DIR": str(ROOT / ".mypy_cache")}
    return subprocess.run(command, env=environment, cwd=path.parent, stdout=subprocess.PIPE, text=True).stdout


def pyright(path: Path) -> str:
    """Check a file in strict mode."""
    settings = {"include": [path.name], "extraPaths": [str(ROOT / "src")], "typeCheckingMode": "strict"}
    (path.parent / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    return subprocess.run(command, cwd=path.parent, stdout=subprocess.PIPE, text=True).stdout


def test_the_users_program_uses_every_public_name_and_method() -> None:
    text = PROGRAM.read_text()
    assert {name for name in attnkit.__all__ if not re.search(rf"\battnkit\.{name}\b", text)} == set()
    classes = [one for name in attnkit.__all__ if inspect.isclass(one := getattr(attnkit, name))]
    methods = [name for one in classes for name, of in inspect.getmembers(one, callable) if not name.startswith("_")]
    assert {name for name in methods if f".{name}(" not in text} == set() and len(methods) > 50


@pytest.mark.slow
@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_users_program_is_typed(check: Callable[[Path], str], tmp_path: Path) -> None:
    text = PROGRAM.read_text()
    path = tmp_path / "program.py"
    path.write_text(text)
    said = check(path)
    assert re.search(r"^(Success: no issues found in 1|0 errors, 0 warnings)", said, re.MULTILINE), said
    wrong = text
    for right, fault in FAULTS.items():
        assert wrong.count(right) == 1
        wrong = wrong.replace(right, fault)
    path.write_text(wrong)
    said = check(path)
    assert re.search(rf"^(Found {len(FAULTS)} errors|{len(FAULTS)} errors, 0 warnings)", said, re.MULTILINE), said
