"""The two files of TensorBoard's projector: ``vectors.tsv``, a row of numbers a line, and ``metadata.tsv``, its word.

Metadata of one column have no header, of several columns they have: so the projector wants it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import BinaryIO

from attnkit.errors import DataError
from attnkit.formats.word_vectors.table import MAX_WIDTH, Floats, VectorTable, check_no_blanks, finite_blocks
from attnkit.formats.word_vectors.text import RowBuffer, blame, parse_numbers

VECTORS, METADATA = "vectors.tsv", "metadata.tsv"
_MAX_LINE = 64 * MAX_WIDTH
_GROUP = 1 << 18  # numbers that are read at a time


def read_rows(stream: BinaryIO, name: str) -> Floats:
    """Return the numbers (V, D) of ``vectors.tsv``.

    Raises:
        DataError: there are none, lines of different widths, or a value that is not a finite number; with its line.
    """
    lines = _lines(stream, name)
    first = next(lines, None)
    if first is None:
        raise DataError("no vectors in this file", where=name)
    width = first[1].count(b"\t") + 1
    if width > MAX_WIDTH:
        raise DataError(f"a row has {width:,} numbers, more than {MAX_WIDTH:,}", where=f"{name}:1")
    rows = RowBuffer(width)
    lines = itertools.chain([first], lines)
    while group := list(itertools.islice(lines, max(1, _GROUP // width))):
        even = all(text.count(b"\t") == width - 1 for _, text in group)
        numbers = parse_numbers([text for _, text in group], width) if even else None
        if numbers is None:
            for line in group:
                blame(line, line[1].split(b"\t"), width, name)
            raise DataError("a value is not a number", where=f"{name}:{group[0][0]}")
        rows.add(numbers)
    return rows.done()


def _lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, bytes]]:
    for number, raw in enumerate(iter(partial(stream.readline, _MAX_LINE + 1), b""), 1):
        if len(raw) > _MAX_LINE:
            raise DataError(f"this line has more than {_MAX_LINE:,} bytes", where=f"{name}:{number}")
        yield number, raw.rstrip(b"\r\n")


def without_header(raw: bytes, n_rows: int) -> bytes:
    """Return the lines of ``metadata.tsv`` without the header that those of several columns have."""
    head, _, rest = raw.partition(b"\n")
    n_lines = raw.count(b"\n") + (not raw.endswith(b"\n"))
    return rest if b"\t" in head and n_lines == n_rows + 1 else raw


def write_rows(stream: BinaryIO, table: VectorTable) -> None:
    """Write ``vectors.tsv``."""
    layout = "\t".join(["%.9g"] * table.rows.shape[1]) + "\n"
    for _, rows in finite_blocks(table):
        stream.write("".join(layout % tuple(row) for row in rows.tolist()).encode())


def metadata_text(table: VectorTable) -> bytes:
    """Return ``metadata.tsv``: the words, with their counts where they are known.

    Raises:
        DataError: a word holds a tab or a line feed.
    """
    check_no_blanks(table.words, "\t\r\n", "leave the word out")
    if table.counts is None:
        return "".join(f"{word}\n" for word in table.words).encode()
    rows = zip(table.words, table.counts.tolist(), strict=True)
    return ("word\tcount\n" + "".join(f"{word}\t{count}\n" for word, count in rows)).encode()
