"""Word vector formats of word2vec (text, binary), fastText, GloVe, TensorBoard."""

import itertools
import math
import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError
from attnkit.formats.word_vectors.table import (
    MAX_WIDTH,
    MAX_WORD_BYTES,
    Floats,
    ScatteredRows,
    VectorTable,
    check_distinct,
    check_no_blanks,
    finite_blocks,
    header,
    text_of,
)

VECTORS, METADATA = "vectors.tsv", "metadata.tsv"  #: projector files; metadata of several columns has a header
_MAX_LINE = 64 * MAX_WIDTH  # bytes per line, without the word
_GROUP = 1 << 18  # numbers per parsed group of lines
FIT = "choose safetensors, npy or projector, or replace spaces (--space _)"

Line = tuple[int, bytes]  #: line number, counted from 1, and content


def read_text(stream: BinaryIO, name: str) -> VectorTable:
    """Read word vectors from a text stream, with or without header.

    Raises ``DataError`` with the line number for rows of different widths, a value that is not a finite number, a row
    without a word, or a number of words that differs from the header.
    """
    raw_lines = _lines(stream, name, MAX_WORD_BYTES + _MAX_LINE)
    lines: Iterator[Line] = ((number, line) for number, raw in raw_lines if (line := _stripped(raw)))
    first = next(lines, None)
    if first is None:
        raise DataError("no vectors in this file", where=name)
    width, claimed = width_of(first[1], f"{name}:{first[0]}"), header(first[1])
    if claimed is None:
        lines = itertools.chain([first], lines)
    words: list[str] = []
    rows = RowBuffer(width)
    while group := list(itertools.islice(lines, max(1, _GROUP // width))):
        cut = [_cut(line, width, name) for line in group]
        numbers = [(number, rest) for (number, _), (_, rest) in zip(group, cut, strict=True)]
        rows.add(parse_rows(numbers, b" ", width, name))
        words += text_of([word for word, _ in cut], name, group[0][0])
    if claimed and claimed[0] != len(words):
        what = f"the header declares {claimed[0]:,} words, but the file has {len(words):,}"
        raise DataError(what, where=f"{name}:1", help="the file is truncated or its header is wrong: write it again")
    if not words:
        raise DataError("no vectors in this file", where=name)
    check_distinct(words, name, first[0] + bool(claimed))
    return VectorTable(words, rows.done())


def width_of(begin: bytes, where: str) -> int:
    """Return the vector width given by a first line; raise ``DataError`` if invalid."""
    line = _stripped(begin.lstrip(b"\r\n").partition(b"\n")[0])
    claimed = header(line)
    width = claimed[1] if claimed else line.count(b" ")
    if not 0 < width <= MAX_WIDTH:
        what = f"invalid vector size {width:,}: expected 1 to {MAX_WIDTH:,}"
        raise DataError(what, where=where, help="each line must be a word and its numbers, separated by spaces")
    return width


def write_lines(stream: BinaryIO, table: VectorTable, *, head: bool = True) -> None:
    """Write word2vec's text format, or GloVe's without a header; float32 stays exact."""
    check_no_blanks(table.words, " \t\r\n", FIT)
    if head:
        stream.write(b"%d %d\n" % table.rows.shape)
    layout = "%s" + " %.9g" * table.rows.shape[1] + "\n"
    for start, rows in finite_blocks(table):
        words = table.words[start : start + len(rows)]
        text = (layout % (word, *row) for word, row in zip(words, rows.tolist(), strict=True))
        stream.write("".join(text).encode())


@dataclass
class RowBuffer:
    """Growable array of rows, for files that do not declare their size."""

    width: int
    _n: int = 0
    _rows: Floats = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def add(self, rows: Floats) -> None:
        """Append rows (n, width)."""
        if self._n + len(rows) > len(self._rows):
            self._rows.resize((max(self._n + len(rows), len(self._rows) * 3 // 2), self.width), refcheck=False)
        self._rows[self._n : self._n + len(rows)] = rows
        self._n += len(rows)

    def done(self) -> Floats:
        """Return all rows."""
        self._rows.resize((self._n, self.width), refcheck=False)
        return self._rows


def parse_rows(group: Sequence[Line], separator: bytes, width: int, name: str) -> Floats:
    """Parse lines into rows (n, width); raise ``DataError`` with the line of an error."""
    if all(text.count(separator) == width - 1 for _, text in group):
        with suppress(ValueError):
            found: Floats = np.fromstring(b" ".join(text for _, text in group), np.float32, sep=" ")
            if found.size == len(group) * width and np.isfinite(found).all():
                return found.reshape(len(group), width)
    for line in group:
        blame(line, line[1].split(separator), width, name)
    raise DataError("a value is not a number", where=f"{name}:{group[0][0]}")


def blame(line: Line, fields: Sequence[bytes], width: int, name: str) -> None:
    """Raise ``DataError`` if the fields of a line are not ``width`` finite numbers."""
    where = f"{name}:{line[0]}"
    if len(fields) != width:
        raise DataError(f"this row has {len(fields):,} numbers, not {width:,}", where=where)
    for text in fields:
        try:
            number = float(text)
        except ValueError as error:
            shown = text[:40].decode("utf-8", "replace")
            raise DataError(f"{shown!r} is not a number" if shown else "a number is missing", where=where) from error
        if not (math.isfinite(number) and abs(number) < 3.5e38):
            raise DataError(f"{text[:40].decode()} is infinite, NaN or too large for float32", where=where)


def _lines(stream: BinaryIO, name: str, most: int) -> Iterator[Line]:
    """Yield numbered raw lines; raise ``DataError`` for more than ``most`` bytes."""
    for number, raw in enumerate(iter(partial(stream.readline, most + 1), b""), 1):
        if len(raw) > most:
            raise DataError(f"this line has more than {most:,} bytes", where=f"{name}:{number}")
        yield number, raw


def _stripped(raw: bytes) -> bytes:
    return raw.replace(b"\t", b" ").rstrip(b" \r\n")


def _cut(line: Line, width: int, name: str) -> tuple[bytes, bytes]:
    """Split a line into word and numbers; some of GloVe's words contain spaces."""
    word, _, rest = line[1].partition(b" ")
    if rest.count(b" ") >= width:
        parts = line[1].rsplit(b" ", width)
        if any(map(_is_number, parts[0].split(b" ")[1:])):
            blame(line, rest.split(b" "), width, name)
        word, rest = parts[0], b" ".join(parts[1:])
    if not word.strip():
        raise DataError("this row has no word", where=f"{name}:{line[0]}")
    if rest.count(b" ") != width - 1 or not rest:
        blame(line, rest.split(b" ") if rest else [], width, name)
    return word, rest


def _is_number(text: bytes) -> bool:
    with suppress(ValueError):
        float(text)
        return True
    return False


Longs = NDArray[np.int64]
_SPACE, _FEED = b" \n"
_AGAIN = "download or create the file again"


def read_binary(data: bytes | mmap.mmap, name: str) -> VectorTable:
    """Read word2vec's binary format without a copy; raise ``DataError`` if damaged."""
    end = data.find(b"\n", 0, 64)
    sizes = header(data[: max(0, end)])
    if sizes is None:
        raise DataError("this is not a binary file of word vectors: the header is missing", where=name)
    n_words, width = sizes
    if not (0 < width <= MAX_WIDTH and n_words):
        raise DataError(f"the header declares {n_words:,} words of width {width:,}", where=name, help=_AGAIN)
    starts, words = _jump(data, end + 1, n_words, 4 * width) or _walk(data, end + 1, n_words, 4 * width, name)
    return VectorTable(words, ScatteredRows(np.frombuffer(data, np.uint8), starts, width))


def _jump(data: bytes | mmap.mmap, place: int, n_words: int, size: int) -> tuple[Longs, list[str]] | None:
    """Return the result of ``_walk`` in half the time; None if the file is not intact."""
    # The regular expression engine skips a row without reading it.
    row = re.compile(rb"\n?([^ \n]{1,%d}) .{%d}" % (MAX_WORD_BYTES, size), re.DOTALL)
    text = b"\n".join(row.findall(data, place))
    try:
        words = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None
    n_feeds = len(data) - place - len(text) - 1 - n_words * size
    if not text or len(words) != n_words or n_feeds not in (0, n_words - 1, n_words) or data[place] == _FEED:
        return None
    feed = int(n_words > 1 and n_feeds > 0)  # line feeds between a row and the next word
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _FEED)
    lengths = np.diff(ends, prepend=-1, append=len(text)) - 1
    starts = place + np.cumsum(lengths + 1 + size + feed) - size - feed
    buffer = np.frombuffer(data, np.uint8)
    whole = (buffer[starts - 1] == _SPACE).all() and (not feed or (buffer[starts[:-1] + size] == _FEED).all())
    return (starts, words) if whole and (n_feeds < n_words or buffer[-1] == _FEED) else None


def _walk(data: bytes | mmap.mmap, place: int, n_words: int, size: int, name: str) -> tuple[Longs, list[str]]:
    """Return the byte offset of each row, and the words; ``size`` is bytes per row."""
    find, last = data.find, len(data) - size
    starts, words = [], []
    for row in range(n_words):
        space = find(b" ", place, place + MAX_WORD_BYTES)
        if space < 0 or space >= last:
            where = f"{name}: row {row + 1:,} of {n_words:,}"
            if space < 0 and len(data) > place + MAX_WORD_BYTES:
                what = f"no word ends within {MAX_WORD_BYTES:,} bytes"
                raise DataError(what, where=where, help=f"the file is damaged: {_AGAIN}")
            raise DataError("the file is truncated here", where=where, help=_AGAIN)
        words.append(data[place:space])
        starts.append(space + 1)
        place = space + 1 + size
    if data[place : place + 1] not in (b"", b"\n") or len(data) > place + 1:
        what = f"{len(data) - place:,} extra bytes after the last of {n_words:,} words"
        raise DataError(what, where=name, help=f"the header is wrong: {_AGAIN}")
    words = [word.lstrip(b"\n") for word in words]
    if not all(words):
        raise DataError("this row has no word", where=f"{name}: row {words.index(b'') + 1}")
    return np.array(starts, np.int64), text_of(words, f"{name}: row", 1)


def write_binary(stream: BinaryIO, table: VectorTable) -> None:
    """Write word2vec.c's binary format; raise ``DataError`` for spaces in a word."""
    check_no_blanks(table.words, " \t\r\n", FIT)
    width = table.rows.shape[1]
    stream.write(b"%d %d\n" % table.rows.shape)
    for start, rows in finite_blocks(table):
        raw = rows.astype("<f4", copy=False).tobytes()
        words = table.words[start : start + len(rows)]
        rows_raw = (raw[4 * width * i : 4 * width * (i + 1)] for i in range(len(rows)))
        stream.write(b"".join(b"%s %s\n" % (w.encode(), row) for w, row in zip(words, rows_raw, strict=True)))


def read_projector(stream: BinaryIO, name: str) -> Floats:
    """Read rows (V, D) of ``vectors.tsv``; raise ``DataError`` naming a wrong line."""
    lines: Iterator[Line] = ((number, raw.rstrip(b"\r\n")) for number, raw in _lines(stream, name, _MAX_LINE))
    first = next(lines, None)
    if first is None:
        raise DataError("no vectors in this file", where=name)
    width = first[1].count(b"\t") + 1
    if width > MAX_WIDTH:
        raise DataError(f"this row has {width:,} numbers, more than the maximum of {MAX_WIDTH:,}", where=f"{name}:1")
    rows, lines = RowBuffer(width), itertools.chain([first], lines)
    while group := list(itertools.islice(lines, max(1, _GROUP // width))):
        rows.add(parse_rows(group, b"\t", width, name))
    return rows.done()


def without_header(raw: bytes, n_rows: int) -> bytes:
    """Return ``metadata.tsv`` without its header; only several columns have one."""
    head, _, rest = raw.partition(b"\n")
    n_lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
    return rest if b"\t" in head and n_lines == n_rows + 1 else raw


def write_projector(stream: BinaryIO, table: VectorTable) -> None:
    """Write the rows as ``vectors.tsv``."""
    layout = "\t".join(["%.9g"] * table.rows.shape[1]) + "\n"
    for _, rows in finite_blocks(table):
        stream.write("".join(layout % tuple(row) for row in rows.tolist()).encode())


def metadata_text(table: VectorTable) -> bytes:
    """Return ``metadata.tsv``; raise ``DataError`` for a tab or line break in a word."""
    check_no_blanks(table.words, "\t\r\n", "leave the word out")
    if table.counts is None:
        return "".join(f"{word}\n" for word in table.words).encode()
    rows = zip(table.words, table.counts.tolist(), strict=True)
    return ("word\tcount\n" + "".join(f"{word}\t{count}\n" for word, count in rows)).encode()
