"""Rows of tables of labeled texts: lines with tabs, CSV, JSONL, Parquet, Arrow.

The first row names the columns. Tabs and line breaks in a cell become spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attnkit.errors import DataError, UsageError
from attnkit.text.field_values import read_csv_rows, read_json_rows
from attnkit.text.files import LineCounts, no_field, suffix_of, undecodable
from attnkit.text.lines import count_lines, read_lines
from attnkit.text.sources import find_source, source_files

Row = tuple[int, list[str]]  #: number of a row, from 1, and its cells
_SPACE = re.compile("\r\n|[\r\n\t]")
_READ_WHOLE = (".csv", ".jsonl", ".ndjson", ".parquet", ".arrow")


def read_rows(path: Path) -> Iterator[Row]:
    """Yield numbered rows; numbers are those of lines, except in Parquet and Arrow.

    Raises ``DataError`` if a table is damaged, a row lacks a column, or the files have different columns.
    """
    source = find_source(path, whole=True)
    if source is not None and source.field is not None:
        what = f"a table of texts and labels is read whole, without the field '{source.field}'"
        raise UsageError(what, where=str(path), help="leave out the field; columns are found by their names")
    files = [path] if source is None else source.files
    names: list[str] | None = None
    for file in files:
        for number, (line, cells) in enumerate(_rows_of(file)):
            if number or names is None:
                yield line, cells
            if not number and names not in (None, cells):
                what = f"the columns are not those of {files[0]}: {', '.join(names or ())[:200]}"
                raise DataError(what, where=str(file), help=f"columns: {', '.join(cells)[:200]}")
            names = names or cells


def is_table(path: Path) -> bool:
    """Return whether a source is of a format whose rows are not lines with tabs."""
    return suffix_of(source_files(path)[0]) in _READ_WHOLE


def can_be_text(path: Path) -> bool:
    """Return whether a source may also be meant as lines of text, as CSV may."""
    return not is_table(path) or suffix_of(source_files(path)[0]) == ".csv"


def count_rows(path: Path) -> int:
    """Return the number of rows of a source, that of the names included."""
    return sum(1 for _ in read_rows(path)) if is_table(path) else count_lines(path)


def _rows_of(path: Path) -> Iterator[Row]:
    suffix = suffix_of(path)
    if suffix in (".parquet", ".arrow"):
        from attnkit.text.arrow_tables import read_table  # imported here: an optional package

        return enumerate((list(map(_cell, row)) for row in read_table(path)), 1)
    if suffix == ".csv":
        return _csv_rows(path)
    if suffix in _READ_WHOLE:
        return _json_rows(path)
    return enumerate((line.split("\t") for line in read_lines(path)), 1)


def _csv_rows(path: Path) -> Iterator[Row]:
    counts = LineCounts()
    for row in read_csv_rows(path, counts):
        if row == []:
            continue  # a blank line is no row
        try:
            yield counts.n_lines, [_cell(cell.decode()) for cell in row]
        except UnicodeDecodeError as error:
            raise undecodable(path, counts.n_lines, b",".join(row), error) from error


def _json_rows(path: Path) -> Iterator[Row]:
    names: list[str] | None = None
    for line, row in read_json_rows(path):
        if not isinstance(row, dict):
            raise DataError("this row is not a JSON object", where=f"{path}:{line}", help="one JSON object per line")
        if names is None:
            names = [key for key, value in row.items() if not isinstance(value, list | dict)]
            yield 1, names
        if missing := [name for name in names if name not in row]:
            raise no_field(missing[0], list(row), f"{path}:{line}")
        if wrong := [name for name in names if isinstance(row[name], list | dict)]:
            raise DataError(f"field '{wrong[0]}' is neither text nor a number", where=f"{path}:{line}")
        try:
            cells = [_cell(row[name]) for name in names]
            "".join(cells).encode()
        except UnicodeEncodeError as error:
            what = "a field is not text: half of a surrogate pair"
            raise DataError(what, where=f"{path}:{line}") from error
        yield line, cells


def _cell(value: Any) -> str:
    """Return a value as the text of a cell."""
    if isinstance(value, str):
        return _SPACE.sub(" ", value) if "\n" in value or "\t" in value or "\r" in value else value
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
