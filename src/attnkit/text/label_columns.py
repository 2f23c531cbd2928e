"""Detection of tables of texts and labels where text alone is expected.

A sample from the beginning of a file decides. Lines with tabs are not enough: code, poems and dialogues have tabs, too.
"""

import csv
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from shlex import quote

from attnkit.text.files import OPENERS, suffix_of
from attnkit.text.lines import read_lines

_N_SAMPLED = 1000  # lines of a file that are searched for columns
_MIN_LINES = 10  # of fewer lines, nothing is said
_MAX_LABEL = 40  # characters of a label
_MAX_WORDS = 3  # of a label
_MIN_REPEATS = 5  # lines per label, in the mean
_N_SHOWN = 3  # labels in a message
_DELIMITERS = {".csv": ",;\t", ".tsv": "\t"}
"""Delimiters of columns by the end of a name; any other file may have tabs."""


def table_warning(path: Path) -> str | None:
    """Return a warning about a file that looks like a table, or None if it is text.

    A file is such a table if all lines have equally many columns, and either the last column has few distinct short
    values and another one many, or the name ends in ``.csv`` or ``.tsv``.
    """
    lines = [line for line in islice(read_lines(path), _N_SAMPLED) if line and not line.isspace()]
    named = suffix if (suffix := suffix_of(path)) in _DELIMITERS else None
    delimiters = _DELIMITERS[named] if named else "\t"
    rows = next((rows for delimiter in delimiters if (rows := split_columns(lines, delimiter, named))), None)
    if rows is None:
        return None
    labels = find_labels(rows)
    if labels is None and named is None:
        return None
    if labels is None:
        read = f"all of its {len(rows[0])} columns are read as text"
    else:
        more = ", …" if len(labels) > _N_SHOWN else ""
        read = f"the labels of its last column ({', '.join(map(repr, labels[:_N_SHOWN]))}{more}) are read as text"
    use, column = "", text_column(rows) + 1
    if named is not None:
        return f"{path} looks like a table: {read}; name the column of the text, e.g. {quote(f'{path}:{column}')}"
    if path.suffix.lower() not in OPENERS:
        use = f", e.g. cut -f{column} {quote(str(path))} > text.txt"
    return f"{path} looks like a table: {read}; give a file with the text alone{use}"


def split_columns(lines: Sequence[str], delimiter: str, named: str | None) -> list[list[str]] | None:
    """Return the cells of each line, or None if there are no columns.

    All lines must have the same number of cells, at least two.
    """
    if named == ".csv":
        try:
            rows = list(csv.reader((f"{line}\n" for line in lines), delimiter=delimiter))
        except csv.Error:
            return None
        if len(lines) == _N_SAMPLED:  # the last cell may have lines that were not read
            del rows[-1:]
    else:
        rows = [line.split(delimiter) for line in lines]
    n_columns = {len(row) for row in rows}
    if len(rows) < _MIN_LINES or len(n_columns) != 1 or n_columns == {1}:
        return None
    return rows


def find_labels(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """Return the labels of the last column, the most frequent first, or None.

    A column of labels has few distinct short values, and another column has many.

    >>> find_labels([[f"Film {n} was {word}.", word] for n in range(8) for word in ("good", "bad")])
    ['good', 'bad']
    """
    last = [row[-1].strip() for row in rows]
    if last.count(last[0]) == 1:  # the name of the column
        last = last[1:]
    labels = set(last)
    if len(labels) * _MIN_REPEATS > len(rows):
        return None
    if not all(value and len(value) <= _MAX_LABEL and len(value.split()) <= _MAX_WORDS for value in labels):
        return None
    texts = {row[text_column(rows)] for row in rows}
    if len(texts) < 2 * len(labels) or len(texts) * _MIN_REPEATS < len(rows):
        return None
    return sorted(labels, key=lambda label: (-last.count(label), label))


def text_column(rows: Sequence[Sequence[str]]) -> int:
    """Return the number of the column, from 0, with the longest cells in the sum."""
    sizes = [sum(map(len, column)) for column in zip(*rows, strict=True)]
    return sizes.index(max(sizes))
