"""Files that word vectors are judged by: pairs of words with people's judgements, and analogies in sections."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple

from attnkit.errors import DataError
from attnkit.text.lines import read_lines

_DELIMITERS = ("\t", ",", ";")
_PAIRS = "a line is two words and a number, with tabs, commas or spaces between them"
_ANALOGIES = "a line is four words, or a colon and the name of a section"


class Pair(NamedTuple):
    """Two words and how alike people find them."""

    a: str
    b: str
    score: float


@dataclass(frozen=True)
class Section:
    """Analogies of one kind: a is to b as c is to d."""

    name: str
    questions: list[tuple[str, str, str, str]] = field(default_factory=list)

    @property
    def is_syntactic(self) -> bool:
        """Whether it is about grammar, by the names of the questions-words file."""
        return self.name.startswith("gram")


def kind_of(path: Path) -> Literal["pairs", "analogies"]:
    """Return what a file asks: analogies have sections, or four words a line. Raises ``DataError`` for an empty one."""
    lines = [line for _, line in islice(_told(path), 2)]  # the first may be a header
    if not lines:
        raise DataError("there are no questions in this file", where=str(path))
    judged = any(_is_number(text) for line in lines for text in _fields(line)[2:])
    return "analogies" if lines[0].startswith(":") or (len(lines[-1].split()) == 4 and not judged) else "pairs"


def read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of a file: two words, then the first column that holds numbers.

    Lines that begin with ``#`` are comments; a first line without a number is a header.

    Raises:
        DataError: a line that is no pair, or no pairs at all.
    """
    pairs: list[Pair] = []
    column, first = 0, True
    for number, line in _told(path):
        fields = _fields(line)
        if not column:
            column = next((i for i, text in enumerate(fields) if i >= 2 and _is_number(text)), 0)
        if first and not column:
            first = False
            continue
        first = False
        if not 2 <= column < len(fields) or not _is_number(fields[column]) or not (fields[0] and fields[1]):
            raise DataError("this line is no pair of words with a number", where=f"{path}:{number}", help=_PAIRS)
        pairs.append(Pair(fields[0], fields[1], float(fields[column])))
    if not pairs:
        raise DataError("there are no pairs of words in this file", where=str(path), help=_PAIRS)
    return pairs


def read_analogies(path: Path) -> list[Section]:
    """Return the sections of a file of analogies.

    Raises:
        DataError: a line that is none, or no analogies at all.
    """
    sections: list[Section] = []
    for number, line in _told(path):
        if line.startswith(":"):
            sections.append(Section(line[1:].strip()))
            continue
        words = line.split()
        if len(words) != 4:
            raise DataError("this line is no analogy", where=f"{path}:{number}", help=_ANALOGIES)
        if not sections:
            sections.append(Section("all"))
        sections[-1].questions.append((words[0], words[1], words[2], words[3]))
    if not any(section.questions for section in sections):
        raise DataError("there are no analogies in this file", where=str(path), help=_ANALOGIES)
    return sections


def _told(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, with their numbers."""
    for number, line in enumerate(read_lines(path), 1):
        if line.strip() and not line.startswith("#"):
            yield number, line


def _fields(line: str) -> list[str]:
    delimiter = next((sign for sign in _DELIMITERS if line.count(sign) >= 2), None)
    if delimiter is None:
        return re.split(r"\s+", line.strip())
    return [text.strip().strip('"') for text in line.split(delimiter)]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
