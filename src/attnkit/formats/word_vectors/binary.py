"""word2vec's binary format: ``V D`` on a line, then for each word its bytes, a space, and D numbers as float32.

word2vec.c writes a line feed after each row, gensim none: both are read. Where a row begins follows from the length of
the words before it, so one walk over the words finds all rows, which stay where they are.
"""

from __future__ import annotations

import mmap
import re
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError
from attnkit.formats.word_vectors.table import (
    MAX_WIDTH,
    MAX_WORD_BYTES,
    ScatteredRows,
    VectorTable,
    check_no_blanks,
    finite_blocks,
    text_of,
)
from attnkit.formats.word_vectors.text import FIT, header

Longs = NDArray[np.int64]
_SPACE, _FEED = b" \n"
_AGAIN = "fetch or write the file again"


def read_binary(data: bytes | mmap.mmap, name: str) -> VectorTable:
    """Return what a buffer holds; its rows stay in it.

    Raises:
        DataError: it is cut off, goes on behind its last word, or is none; with the number of the row.
    """
    end = data.find(b"\n", 0, 64)
    sizes = header(data[: max(0, end)])
    if sizes is None:
        raise DataError("this is no binary file of word vectors: it does not begin with its sizes", where=name)
    n_words, width = sizes
    if not (0 < width <= MAX_WIDTH and n_words):
        raise DataError(f"the first line tells of {n_words:,} words of {width:,} numbers", where=name, help=_AGAIN)
    starts, words = _jump(data, end + 1, n_words, 4 * width) or _walk(data, end + 1, n_words, 4 * width, name)
    return VectorTable(words, ScatteredRows(np.frombuffer(data, np.uint8), starts, width))


def _jump(data: bytes | mmap.mmap, place: int, n_words: int, size: int) -> tuple[Longs, list[str]] | None:
    """Return what ``_unroll`` does, in half its time, for a file that is as it should be; None for any other.

    The engine of regular expressions jumps over a row without a look at it.
    """
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
            raise _broken(data, place, space, row, n_words, name)
        words.append(data[place:space])
        starts.append(space + 1)
        place = space + 1 + size
    if data[place : place + 1] not in (b"", b"\n") or len(data) > place + 1:
        what = f"{len(data) - place:,} bytes follow the last of {n_words:,} words"
        raise DataError(what, where=name, help=f"the first line does not tell the truth: {_AGAIN}")
    words = [word.lstrip(b"\n") for word in words]
    if not all(words):
        raise DataError("this row has no word", where=f"{name}: row {words.index(b'') + 1}")
    return np.array(starts, np.int64), text_of(words, f"{name}: row", 1)


def _broken(data: bytes | mmap.mmap, place: int, space: int, row: int, n_words: int, name: str) -> DataError:
    where = f"{name}: row {row + 1:,} of {n_words:,}"
    if space < 0 and len(data) > place + MAX_WORD_BYTES:
        return DataError(f"no word ends within {MAX_WORD_BYTES:,} bytes", where=where, help=f"it is damaged: {_AGAIN}")
    return DataError("the file is cut off here", where=where, help=_AGAIN)


def write_binary(stream: BinaryIO, table: VectorTable) -> None:
    """Write the format as word2vec.c does, a line feed after each row.

    Raises:
        DataError: a word holds white space.
    """
    check_no_blanks(table.words, " \t\r\n", FIT)
    width = table.rows.shape[1]
    stream.write(b"%d %d\n" % table.rows.shape)
    for start, rows in finite_blocks(table):
        raw = rows.astype("<f4", copy=False).tobytes()
        words = table.words[start : start + len(rows)]
        rows_raw = (raw[4 * width * i : 4 * width * (i + 1)] for i in range(len(rows)))
        stream.write(b"".join(b"%s %s\n" % (w.encode(), row) for w, row in zip(words, rows_raw, strict=True)))
