"""Values of one field of tables: JSONL, CSV, TSV; others in modules of their own.

Every row gives one value: one line of text. A value that is missing in the sense of its format, ``null`` or a
translation unit without the language, is an empty line, so that two fields of one table stay aligned.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from attnkit.errors import DataError
from attnkit.io.safe_read import parse_json
from attnkit.text.files import BOM, MAX_BYTES, LineCounts, endless, guess, no_field, opened_file, suffix_of, undecodable
from attnkit.text.tmx import LanguageCounts, read_tmx

_BREAKS = re.compile("\r\n|\r|\n")
_BYTE_BREAKS = re.compile(b"\r\n|\r|\n")
_BOM = BOM.encode()


class FieldReader:
    """Reader of one field of tables, one value per row, in UTF-8."""

    def __init__(self, field: str) -> None:
        self.field = field
        self.n_line_breaks = 0  #: values whose line breaks became spaces
        self.found = LanguageCounts()  #: languages of TMX files

    def values(self, path: Path) -> Iterator[bytes]:
        """Yield the values of a table.

        Raises:
            DataError: The table is damaged, or a row lacks the field or has another value than text there.
            UsageError: The file is missing, or a package that reads it.
        """
        suffix = suffix_of(path)
        if suffix in (".parquet", ".arrow"):
            from attnkit.text.arrow_tables import read_column  # imported here: an optional package

            return map(self._line, read_column(path, self.field))
        if suffix == ".tmx":
            return map(self._line, read_tmx(path, self.field, self.found))
        if suffix in (".csv", ".tsv"):
            return self._cells(path, suffix)
        return self._json_values(path)

    def finish(self, files: Sequence[Path]) -> None:
        """Raise ``DataError`` if no translation unit of TMX files has the language."""
        if self.found.others and not self.found.n_units:
            raise no_field(self.field, sorted(self.found.others), str(files[0]), "language")

    def _line(self, value: str | None) -> bytes:
        """Return a value without line breaks; None is an empty line."""
        if not value:
            return b""
        if "\n" in value or "\r" in value:
            value = value.strip("\r\n")
            self.n_line_breaks += bool(_BREAKS.search(value))
            value = _BREAKS.sub(" ", value)
        return value.encode()

    def _json_values(self, path: Path) -> Iterator[bytes]:
        keys = self.field.split(".")
        for line, row in read_json_rows(path):
            where = f"{path}:{line}"
            try:
                yield self._line(find_value(row, self.field, keys, where))
            except UnicodeEncodeError as error:
                raise DataError(f"field '{self.field}' is not text: half of a surrogate pair", where=where) from error

    def _cells(self, path: Path, suffix: str) -> Iterator[bytes]:
        """Yield a column; its bytes are passed on, also those that are not UTF-8."""
        column, n_columns = (int(self.field), 0) if re.fullmatch(r"[1-9]\d{0,3}", self.field) else (0, 0)
        counts = LineCounts()
        for row in read_csv_rows(path, counts) if suffix == ".csv" else _tab_rows(path, counts):
            where = f"{path}:{counts.n_lines}"
            if not n_columns:
                n_columns = len(row)
                names = [name.decode("utf-8", "replace").strip() for name in row]
                if column > n_columns:
                    raise DataError(f"the table has {n_columns} columns, not {column}", where=where)
                if not column:
                    if names.count(self.field) != 1:
                        raise no_field(self.field, names, where, "column", guess(b"\t".join(row), "utf-8"))
                    column = names.index(self.field) + 1
                    continue
            if len(row) != n_columns:
                if row in ([], [b""]):
                    continue  # a blank line is no row
                help = "a tab or an unquoted comma in a text divides it"
                what = f"this row has {len(row)} columns, the first one {n_columns}"
                raise DataError(what, where=where, help=help)
            value = row[column - 1]
            if b"\n" in value or b"\r" in value:
                value = value.strip(b"\r\n")
                self.n_line_breaks += bool(_BYTE_BREAKS.search(value))
                value = _BYTE_BREAKS.sub(b" ", value)
            yield value


def read_json_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield the value of each line of JSONL that is not blank, with its number."""
    counts = LineCounts()
    with opened_file(path, counts) as stream:
        for raw in _table_lines(path, stream, counts):
            if not raw.strip():
                continue
            try:
                row = parse_json(raw)
            except UnicodeDecodeError as error:
                raise undecodable(path, counts.n_lines, raw, error) from error
            except ValueError as error:
                known = guess(raw, "utf-8") if counts.n_lines == 1 else None
                help, where = known or "each line must be one JSON object", f"{path}:{counts.n_lines}"
                raise DataError(f"this line is not valid JSON: {error}", where=where, help=help) from error
            yield counts.n_lines, row


def find_value(row: Any, field: str, keys: Sequence[str], where: str) -> str | None:
    """Return the text at a dotted field of a JSON object; None for null.

    A key with a dot in it is found as it is.
    """
    value = row
    for key in [field] if isinstance(row, dict) and field in row else keys:
        if value is None:
            return None
        if not isinstance(row, dict):
            raise DataError("this row is not a JSON object", where=where, help="each line must be one JSON object")
        if not isinstance(value, dict) or key not in value:
            raise no_field(field, list(_dotted(row)), where)
        value = value[key]
    if value is not None and not isinstance(value, str):
        kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
        what = f"field '{field}' is {kinds.get(type(value), 'not text')}, not text"
        raise no_field(field, list(_dotted(row)), where, what=what)
    return value


def _dotted(row: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of fields, those of one level of nesting with their dots."""
    for key, value in row.items():
        if isinstance(value, dict) and not prefix:
            yield from _dotted(value, f"{key}.")
        else:
            yield f"{prefix}{key}"


def _table_lines(path: Path, stream: Any, counts: LineCounts) -> Iterator[bytes]:
    """Yield the lines of a table without their ends."""
    for raw in iter(partial(stream.readline, MAX_BYTES + 1), b""):
        counts.n_lines += 1
        if len(raw) > MAX_BYTES:
            raise endless(path, counts.n_lines)
        raw = raw.removeprefix(_BOM) if counts.n_lines == 1 else raw
        yield raw.removesuffix(b"\n").removesuffix(b"\r")


def _tab_rows(path: Path, counts: LineCounts) -> Iterator[list[bytes]]:
    """Yield the rows of a table with tabs."""
    with opened_file(path, counts) as stream:
        for line in _table_lines(path, stream, counts):
            yield line.split(b"\t")


def read_csv_rows(path: Path, counts: LineCounts) -> Iterator[list[bytes]]:
    """Yield the rows of CSV; the first line shows the delimiter.

    Raises ``DataError`` for quotation marks without a partner and cells of more than 131,072 characters.
    """
    with opened_file(path, counts) as stream:
        lines = _table_lines(path, stream, counts)
        first = next(lines, None)
        if first is None:
            return
        delimiter = next((sign for sign in ",;\t" if sign.encode() in first), ",")
        texts = (line.decode("utf-8", "surrogateescape") + "\n" for line in chain([first], lines))
        rows = csv.reader(texts, delimiter=delimiter, strict=True)
        while True:
            try:
                row = next(rows, None)
            except csv.Error as error:
                help, where = "quote text with quotation marks or delimiters", f"{path}:{counts.n_lines}"
                raise DataError(f"this is not valid CSV: {error}", where=where, help=help) from error
            if row is None:
                return
            yield [cell.encode("utf-8", "surrogateescape") for cell in row]
