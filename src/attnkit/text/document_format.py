"""Raw text as documents: lines, or blocks of lines with blank lines between them. Knows no labels and no tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

from attnkit.text.lines import read_lines

DocumentFormat = Literal["lines", "blocks"]
MAX_DOCUMENT_LINES = 1 << 20
"""Characters of a block; what is longer goes on as another document, so that no file has to be held as a whole."""
_HEAD = 10_000  # lines
_RARE = 200
"""Blank lines that are rarer than one to so many divide nothing: somebody left them there."""


def detect_document_format(path: Path) -> DocumentFormat:
    """Return what the documents of a file are, by its first lines: blocks where blank lines stand between others."""
    n_lines = n_borders = 0
    blank = True
    for line in islice(read_lines(path), _HEAD):
        if not line or line.isspace():
            blank = True
        else:
            n_borders += blank and n_lines > 0
            n_lines, blank = n_lines + 1, False
    return "blocks" if n_borders and n_borders * _RARE >= n_lines else "lines"


def read_documents(path: Path, shape: DocumentFormat) -> Iterator[str]:
    """Yield the documents of a file that are not blank, the lines of each joined by spaces.

    Raises:
        DataError: a byte is no UTF-8, or the like.
    """
    lines = read_lines(path)
    if shape == "blocks":
        yield from join_blocks(lines)
    else:
        yield from (line for line in lines if line and not line.isspace())


def join_blocks(lines: Iterable[str]) -> Iterator[str]:
    """Yield the blocks of lines between blank ones.

    >>> list(join_blocks(["", "It rained.", "Nobody came.", " ", "The end."]))
    ['It rained. Nobody came.', 'The end.']
    """
    block: list[str] = []
    size = 0
    for line in lines:
        blank = not line or line.isspace()
        if block and (blank or size + len(line) > MAX_DOCUMENT_LINES):
            yield " ".join(block)
            block, size = [], 0
        if not blank:
            block.append(line.strip())
            size += len(line) + 1
    if block:
        yield " ".join(block)
