"""Documents in text: lines or blocks of lines, sentences, words, labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

from attnkit.errors import DataError
from attnkit.text.lines import read_lines

DocumentFormat = Literal["lines", "blocks"]
MAX_DOCUMENT_LENGTH = 1 << 20
"""Maximum characters of a block; a longer one is split, so that no file has to be held as a whole."""
_N_SAMPLED = 10_000  # lines
_MAX_LINES_PER_BLANK = 200
"""Blank lines rarer than one in so many separate nothing: they were left in by accident."""


def detect_document_format(path: Path) -> DocumentFormat:
    """Return the format that the first lines of a file suggest: blocks if blank lines separate the others."""
    n_lines = n_borders = 0
    blank_before = False
    for line in islice(read_lines(path), _N_SAMPLED):
        blank = not line or line.isspace()
        n_borders += blank_before and not blank and n_lines > 0
        n_lines, blank_before = n_lines + (not blank), blank
    return "blocks" if n_borders and n_borders * _MAX_LINES_PER_BLANK >= n_lines else "lines"


def read_documents(path: Path, shape: DocumentFormat) -> Iterator[str]:
    """Yield the documents of a file that are not blank, the lines of each joined by spaces."""
    lines = read_lines(path)
    return join_blocks(lines) if shape == "blocks" else (line for line in lines if line and not line.isspace())


def join_blocks(lines: Iterable[str]) -> Iterator[str]:
    """Yield the blocks of lines between blank ones.

    >>> list(join_blocks(["", "It rained.", "Nobody came.", " ", "The end."]))
    ['It rained. Nobody came.', 'The end.']
    """
    block: list[str] = []
    size = 0
    for line in lines:
        blank = not line or line.isspace()
        if block and (blank or size + len(line) > MAX_DOCUMENT_LENGTH):
            yield " ".join(block)
            block, size = [], 0
        if not blank:
            block.append(line.strip())
            size += len(line) + 1
    if block:
        yield " ".join(block)


SEPARATOR = "|||"
MAX_LABEL_LENGTH = 200
"""Characters of a label."""
_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*")
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")


def split_sentences(document: str) -> list[str]:
    """Return the sentences of a document, without blank ones.

    >>> split_sentences("It rained. Nobody came!")
    ['It rained.', 'Nobody came!']
    >>> split_sentences("no. 1 ||| no. 2")
    ['no. 1', 'no. 2']
    """
    parts = document.split(SEPARATOR) if SEPARATOR in document else _END.split(document)
    return [part.strip() for part in parts if part.strip()]


def space_words(sentence: str) -> str:
    """Return a sentence with a space between words and punctuation marks, as a vocabulary of whole words needs it.

    >>> space_words("Don't go, well-known friend!")
    "Don't go , well-known friend !"
    """
    return " ".join(_WORD.findall(sentence))


def read_labeled(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the documents, maybe blank, and labels of a file. Raises ``DataError`` for other lines than these."""
    for number, line in enumerate(read_lines(path), 1):
        columns = line.split("\t")
        label = columns[-1].strip()
        if len(columns) != 2:
            n = len(columns)
            what = f"this line has {n} column{'s'[: n != 1]}, not two: a document, a tab, its label"
            help = "take tabs out of the documents" if n > 2 else "put a tab and its label after the document"
            raise DataError(what, where=f"{path}:{number}", help=help)
        if fault := label_fault(label):
            raise DataError(fault, where=f"{path}:{number}", help="each line is a document, a tab, its label")
        yield columns[0], label


def label_fault(label: str) -> str | None:
    """Return the reason why a label is invalid, None if it is not."""
    if not label:
        return "the label is missing"
    if len(label) > MAX_LABEL_LENGTH:
        return f"this label has {len(label):,} characters, more than {MAX_LABEL_LENGTH}"
    return "this label holds a carriage return" if "\r" in label else None
