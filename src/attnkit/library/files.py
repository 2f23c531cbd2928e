"""Files and texts as arguments of calls, and warnings. Torch-free."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from attnkit.errors import DataError
from attnkit.text.lines import read_lines

Files = str | Path | Sequence[str | Path]
"""One file, or several."""
Text = str | Path | Sequence[str]
"""A file, or lines as a list."""
WINDOW = 256  #: items of a stream that are read ahead


def paths_of(files: Files) -> list[Path]:
    """Return one or several files as a list of paths."""
    return [Path(files)] if isinstance(files, str | Path) else [Path(path) for path in files]


def as_path(path: str | Path | None) -> Path | None:
    """Return a path, or None for none."""
    return None if path is None else Path(path)


def lines_of(text: Text) -> list[str]:
    """Return the lines of a text; raise ``DataError`` if its file is not UTF-8."""
    return list(read_lines(Path(text))) if isinstance(text, str | Path) else list(text)


def single_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines as they are; raise ``DataError`` for a line break within one."""
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str) or "\n" in line:
            what = "a line break within a line" if isinstance(line, str) else f"a {type(line).__name__}, not a text"
            help = "give each line of a text by itself, as of str.split('\\n')"
            raise DataError(what, where=f"line {number:,}", help=help)
        yield line


def windows(*streams: Iterable[Any]) -> Iterator[tuple[list[Any], ...]]:
    """Yield up to 256 items of each stream at a time.

    Raises:
        DataError: one stream has fewer items than another.
    """
    remaining = [iter(stream) for stream in streams]
    n_before = 0
    while True:
        found = tuple(list(islice(one, WINDOW)) for one in remaining)
        if len({*map(len, found)}) > 1:
            where = f"item {n_before + min(map(len, found)) + 1:,}"
            raise DataError("one stream ends before another", where=where, help="give as many items of each")
        if not found[0]:
            return
        n_before += len(found[0])
        yield found


def check_lengths(first: str, second: str, *lists: Sequence[object]) -> None:
    """Raise ``DataError`` unless two named lists have the same length."""
    n_first, n_second = map(len, lists)
    if n_first != n_second:
        what = f"{n_first:,} {first}, but {n_second:,} {second}"
        raise DataError(what, where=second, help=f"give as many {second} as {first}")


def warn(text: str) -> None:
    """Issue a ``UserWarning`` that names the line of the caller of the library."""
    frame, level = sys._getframe(1), 2  # level 1 is this function
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("attnkit."):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)
