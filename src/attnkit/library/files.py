"""Files and texts as arguments of calls, and warnings. Torch-free."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from attnkit.errors import DataError
from attnkit.text.lines import read_lines

Files = str | Path | Sequence[str | Path]
"""One file, or several."""
Text = str | Path | Sequence[str]
"""A file, or lines as a list."""


def paths_of(files: Files) -> list[Path]:
    """Return one or several files as a list of paths."""
    return [Path(files)] if isinstance(files, str | Path) else [Path(path) for path in files]


def lines_of(text: Text) -> list[str]:
    """Return the lines of a text; raise ``DataError`` if its file is not UTF-8."""
    return list(read_lines(Path(text))) if isinstance(text, str | Path) else list(text)


def as_lines(lines: Sequence[str]) -> list[str]:
    """Return lines as a list; raise ``TypeError`` unless all are strings."""
    if isinstance(lines, str):
        raise TypeError("expected a list of texts, not one string")
    found = list(lines)
    for number, line in enumerate(found):
        if not isinstance(line, str):
            raise TypeError(f"expected a list of texts, not {type(line).__name__} at place {number}")
    return found


def single_lines(lines: Sequence[str]) -> list[str]:
    """Return lines as a list; raise ``DataError`` for one that has a line break."""
    found = as_lines(lines)
    for number, line in enumerate(found, 1):
        if "\n" in line:
            help = "give each line of a text by itself, as of str.split('\\n')"
            raise DataError("a line break within a line", where=f"line {number:,}", help=help)
    return found


def warn(text: str) -> None:
    """Issue a ``UserWarning`` that names the line of the caller of the library."""
    frame, level = sys._getframe(1), 2  # level 1 is this function
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("attnkit."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
