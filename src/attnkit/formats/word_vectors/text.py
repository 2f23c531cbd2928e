"""word2vec's formats, text and binary, and their kin: fastText's ``.vec``, GloVe's text, TensorBoard's projector."""

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

VECTORS, METADATA = "vectors.tsv", "metadata.tsv"  #: the projector's rows and words; several columns have a header
_MAX_LINE = 64 * MAX_WIDTH  # bytes, without a word
_GROUP = 1 << 18  # numbers that are read at a time
FIT = "choose safetensors, npy or projector, or replace spaces (--space _)"

Line = tuple[int, bytes]  #: number, counted from 1, and content without what ends it


def read_text(stream: BinaryIO, name: str) -> VectorTable:
    """Read word vectors from a text stream, with or without header.

    Raises ``DataError`` with the line for rows of different widths, a value that is not a finite number, a row without
    a word, or another number of words than the header declares.
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
    """Return the numbers of a row by the first line of a file. Raises ``DataError`` where they cannot be so many."""
    line = _stripped(begin.lstrip(b"\r\n").partition(b"\n")[0])
    claimed = header(line)
    width = claimed[1] if claimed else line.count(b" ")
    if not 0 < width <= MAX_WIDTH:
        what = f"invalid vector size {width:,}: expected 1 to {MAX_WIDTH:,}"
        raise DataError(what, where=where, help="a line is a word and its numbers, spaces between them")
    return width


def write_lines(stream: BinaryIO, table: VectorTable, *, head: bool = True) -> None:
    """Write word2vec's text format, or GloVe's without a header; nine digits keep every float32 exactly."""
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
        """Take rows (n, width) in."""
        if self._n + len(rows) > len(self._rows):
            self._rows.resize((max(self._n + len(rows), len(self._rows) * 3 // 2), self.width), refcheck=False)
        self._rows[self._n : self._n + len(rows)] = rows
        self._n += len(rows)

    def done(self) -> Floats:
        """Return all rows."""
        self._rows.resize((self._n, self.width), refcheck=False)
        return self._rows


def parse_rows(group: Sequence[Line], separator: bytes, width: int, name: str) -> Floats:
    """Return the numbers (n, width) of some lines. Raises ``DataError`` for a wrong value, with its line."""
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
            raise DataError(f"{text[:40].decode()} is not finite or too large for float32", where=where)


def _lines(stream: BinaryIO, name: str, most: int) -> Iterator[Line]:
    """Yield the lines as they are. Raises ``DataError`` for one of more than ``most`` bytes."""
    for number, raw in enumerate(iter(partial(stream.readline, most + 1), b""), 1):
        if len(raw) > most:
            raise DataError(f"this line has more than {most:,} bytes", where=f"{name}:{number}")
        yield number, raw


def _stripped(raw: bytes) -> bytes:
    return raw.replace(b"\t", b" ").rstrip(b" \r\n")


def _cut(line: Line, width: int, name: str) -> tuple[bytes, bytes]:
    """Return the word and the text of its numbers. The word may hold spaces, as some of GloVe's do."""
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
    """Return what a buffer holds; its rows stay in it. Raises ``DataError`` with the row where it is damaged."""
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
    """Return what ``_walk`` does, in half its time, for an intact file; None for any other."""
    # The engine of regular expressions jumps over a row without a look at it.
    row = re.compile(rb"\n?([^ \n]{1,%d}) .{%d}" % (MAX_WORD_BYTES, size), re.DOTALL)
    text = b"\n".join(row.findall(data, place))
    try:
        words = text.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None
    n_feeds = len(data) - place - len(text) - 1 - n_words * size
    if not text or len(words) != n_words or n_feeds not in (0, n_words - 1, n_words) or data[place] == _FEED:
        return None
    feed = int(n_words > 1 and n_feeds > 0)  # whether one stands between a row and the next word
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == _FEED)
    lengths = np.diff(ends, prepend=-1, append=len(text)) - 1
    starts = place + np.cumsum(lengths + 1 + size + feed) - size - feed
    buffer = np.frombuffer(data, np.uint8)
    whole = (buffer[starts - 1] == _SPACE).all() and (not feed or (buffer[starts[:-1] + size] == _FEED).all())
    return (starts, words) if whole and (n_feeds < n_words or buffer[-1] == _FEED) else None


def _walk(data: bytes | mmap.mmap, place: int, n_words: int, size: int, name: str) -> tuple[Longs, list[str]]:
    """Return where the numbers of each row begin, and the words before them. ``size`` is a row's, in bytes."""
    find, last = data.find, len(data) - size
    starts, words = [], []
    for row in range(n_words):
        space = find(b" ", place, place + MAX_WORD_BYTES)
        if space < 0 or space >= last:
            where = f"{name}: row {row + 1:,} of {n_words:,}"
            if space < 0 and len(data) > place + MAX_WORD_BYTES:
                what = f"no word ends within {MAX_WORD_BYTES:,} bytes"
                raise DataError(what, where=where, help=f"it is damaged: {_AGAIN}")
            raise DataError("the file is cut off here", where=where, help=_AGAIN)
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
    """Write the format as word2vec.c does, a line feed after each row. Raises ``DataError`` for spaces in a word."""
    check_no_blanks(table.words, " \t\r\n", FIT)
    width = table.rows.shape[1]
    stream.write(b"%d %d\n" % table.rows.shape)
    for start, rows in finite_blocks(table):
        raw = rows.astype("<f4", copy=False).tobytes()
        words = table.words[start : start + len(rows)]
        rows_raw = (raw[4 * width * i : 4 * width * (i + 1)] for i in range(len(rows)))
        stream.write(b"".join(b"%s %s\n" % (w.encode(), row) for w, row in zip(words, rows_raw, strict=True)))


def read_projector(stream: BinaryIO, name: str) -> Floats:
    """Return the numbers (V, D) of ``vectors.tsv``. Raises ``DataError`` with the line of a wrong value."""
    lines: Iterator[Line] = ((number, raw.rstrip(b"\r\n")) for number, raw in _lines(stream, name, _MAX_LINE))
    first = next(lines, None)
    if first is None:
        raise DataError("no vectors in this file", where=name)
    width = first[1].count(b"\t") + 1
    if width > MAX_WIDTH:
        raise DataError(f"a row has {width:,} numbers, more than {MAX_WIDTH:,}", where=f"{name}:1")
    rows, lines = RowBuffer(width), itertools.chain([first], lines)
    while group := list(itertools.islice(lines, max(1, _GROUP // width))):
        rows.add(parse_rows(group, b"\t", width, name))
    return rows.done()


def without_header(raw: bytes, n_rows: int) -> bytes:
    """Return the lines of ``metadata.tsv`` without the header that those of several columns have."""
    head, _, rest = raw.partition(b"\n")
    n_lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
    return rest if b"\t" in head and n_lines == n_rows + 1 else raw


def write_projector(stream: BinaryIO, table: VectorTable) -> None:
    """Write ``vectors.tsv``."""
    layout = "\t".join(["%.9g"] * table.rows.shape[1]) + "\n"
    for _, rows in finite_blocks(table):
        stream.write("".join(layout % tuple(row) for row in rows.tolist()).encode())


def metadata_text(table: VectorTable) -> bytes:
    """Return ``metadata.tsv``: words, and known counts. Raises ``DataError`` for a word with a tab or line feed."""
    check_no_blanks(table.words, "\t\r\n", "leave the word out")
    if table.counts is None:
        return "".join(f"{word}\n" for word in table.words).encode()
    rows = zip(table.words, table.counts.tolist(), strict=True)
    return ("word\tcount\n" + "".join(f"{word}\t{count}\n" for word, count in rows)).encode()
