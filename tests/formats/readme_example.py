"""The programs that exported folders show in their README, run as a reader would."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any


def example(folder: Path) -> str:
    """Return the program."""
    code = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    assert code is not None
    return code[1]


def readme_functions(folder: Path, *replaced: tuple[str, str]) -> dict[str, Any]:
    """Run the program inside the folder, with texts replaced, and return what it defines."""
    code = example(folder)
    for old, new in replaced:
        assert old in code
        code = code.replace(old, new)
    found: dict[str, Any] = {"__name__": "readme"}
    before = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(None):
            exec(code, found)
    finally:
        os.chdir(before)
    return found
