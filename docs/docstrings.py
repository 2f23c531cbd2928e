"""Docstrings for autodoc: shapes, powers and products in them are text, not markup."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"(``.+?``|`[^`]+`)")


def to_markup(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape, in place, what reStructuredText would take for emphasis or a link; single backticks become code."""
    lines[:] = [_line(line) for line in lines]


def _line(line: str) -> str:
    parts = CODE.split(line)
    for index, part in enumerate(parts):
        if index % 2 == 0:
            # A directive or field of napoleon (``:param x:``) keeps its marks.
            parts[index] = part if part.lstrip().startswith((":", "..")) else re.sub(r"([*|]|_(?=\W|$))", r"\\\1", part)
        elif not part.startswith("``"):
            parts[index] = f"`{part}`"
    return "".join(parts)
