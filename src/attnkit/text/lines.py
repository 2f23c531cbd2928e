"""Line readers for plain and compressed text files; only line feeds end a line.

Irregular lines are counted. Lines from pipes and terminals are yielded in batches as they arrive.
"""

import os
import queue
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

from attnkit.errors import AttnkitError, DataError, UsageError
from attnkit.text.files import (
    BOM,
    MAX_BYTES,
    STDIN,
    LineCounts,
    endless,
    guess,
    is_stream,
    only_once,
    open_file,
    opened_file,
    undecodable,
)
from attnkit.text.sources import find_source, open_source, source_files

MAX_CHARACTERS = 1 << 22  #: a batch of lines ends once it has this many characters; its last line may exceed the limit
_FLUSH_SECONDS = 0.02

_MAX_FIRST_LINES = 10  #: first lines searched for signs of UTF-16, since a single line may be too short
_MIN_UTF16_LETTERS = 16  #: minimum number of letters among NULs to detect UTF-16
_INVISIBLE = re.compile(
    r"[\s\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\u2800\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]*"
)

Item = TypeVar("Item")
_PAUSE: Any = object()  #: marker among arriving items: no item has arrived for a while


def is_blank(line: str) -> bool:
    """Return whether a line has nothing to see: white space and invisible characters.

    >>> is_blank(" \\u200b "), is_blank("x")
    (True, False)
    """
    return not "!" <= line[:1] <= "~" and _INVISIBLE.fullmatch(line) is not None


def open_binary(path: Path) -> BinaryIO:
    """Open a source of text (``text.sources``; ``-``: standard input) as one stream.

    Raises ``UsageError`` if it is missing, ``DataError`` if damaged, ``SystemFailure`` for other errors.
    """
    source = find_source(path)
    return open_file(path) if source is None else open_source(source)


def check_not_streams(paths: Iterable[Path]) -> None:
    """Check that all paths can be read repeatedly; raise ``UsageError`` otherwise."""
    path = next(filter(only_once, paths), None)
    if path is not None:
        name = "standard input" if path == STDIN else path
        raise UsageError(f"{name} can be read only once", help="write it to a file first")


def check_not_overwriting(output: Path | None, texts: Iterable[Path]) -> None:
    """Raise ``UsageError`` if the output file is also an input, even as stdin."""
    if output is None or not output.is_file():
        return
    for path in chain.from_iterable(map(source_files, texts)):
        with suppress(OSError, ValueError, AttributeError):  # missing or closed: its reader reports it
            text = os.fstat(sys.stdin.fileno()) if path == STDIN else path.stat()
            if os.path.samestat(text, output.stat()):
                raise UsageError(f"output file {output} is also an input file", help="give the output another name")


class LineReader:
    r"""Iterable over the lines of a file, without ``\n``; can be iterated only once.

    A ``\r`` before ``\n`` and a byte-order mark at the start are dropped and counted; ``counts`` is always up to date.
    With ``on_bad="replace"``, bytes that are not UTF-8 become U+FFFD; otherwise, they raise ``DataError``.
    """

    def __init__(
        self,
        path: Path,
        *,
        on_bad: Literal["refuse", "replace"] = "refuse",
        open_path: Callable[[Path], BinaryIO] = open_binary,
    ) -> None:
        self.path = path
        self._open_path = open_path
        self.counts = LineCounts()
        self._on_bad = on_bad

    def __iter__(self) -> Iterator[str]:
        counts = self.counts
        with opened_file(self.path, counts, self._open_path) as raw_lines:
            utf16, lines = detect_utf16(iter(partial(raw_lines.readline, MAX_BYTES + 1), b""))
            for raw in lines:
                counts.n_lines += 1
                if len(raw) > MAX_BYTES:
                    raise endless(self.path, counts.n_lines)
                try:
                    if counts.n_lines == 1 and utf16:
                        raise UnicodeDecodeError("utf-16", raw, raw.index(b"\0"), raw.index(b"\0") + 1, "by its NULs")
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    if self._on_bad == "refuse":
                        raise undecodable(self.path, counts.n_lines, raw, error) from error
                    counts.n_bad += 1
                    counts.first_bad = counts.first_bad or counts.n_lines
                    counts.guess = guess(raw, error.encoding) if counts.n_lines == 1 else counts.guess
                    line = raw.decode("utf-8", errors="replace")
                line = line.removesuffix("\n")
                if line.endswith("\r"):
                    line = line[:-1]
                    counts.n_carriage_returns += 1
                if counts.n_lines == 1 and line.startswith(BOM):
                    line = line[1:]
                    counts.byte_order_mark = True
                yield line


def read_lines(path: Path, *, on_bad: Literal["refuse", "replace"] = "refuse") -> Iterator[str]:
    """Yield the lines of a file, like ``LineReader`` but without counts."""
    return iter(LineReader(path, on_bad=on_bad))


@contextmanager
def opened(path: Path, counts: LineCounts) -> Iterator[BinaryIO]:
    """Open a source of text as a context manager; read errors name the line.

    Raises ``DataError`` for a damaged compressed file, and the errors of ``open_binary``.
    """
    with opened_file(path, counts, open_binary) as stream:
        yield stream


def count_lines(path: Path) -> int:
    r"""Count the lines that ``read_lines`` yields, also a last one without ``\n``.

    Raises ``DataError`` if the file is empty or damaged, or has a line of more than ``MAX_BYTES``.
    """
    counts, length = LineCounts(), 0  # length: bytes read so far of the current line
    with opened(path, counts) as stream:
        while block := stream.read(1 << 20):
            length += block.find(b"\n") + 1 or len(block)
            if length > MAX_BYTES:
                raise endless(path, counts.n_lines + 1)
            if b"\n" in block:
                counts.n_lines += block.count(b"\n")
                length = len(block) - block.rfind(b"\n") - 1
    n_lines = counts.n_lines + (length > 0)
    if not n_lines:
        raise DataError("this file is empty", where=str(path))
    return n_lines


def detect_utf16(lines: Iterator[bytes]) -> tuple[bool, Iterator[bytes]]:
    """Return whether lines look like UTF-16 without a BOM, and all the lines."""
    ahead, n_bytes = list(islice(lines, 1)), 8 * _MIN_UTF16_LETTERS
    while ahead and b"\0" in ahead[0] and len(ahead) < _MAX_FIRST_LINES and sum(map(len, ahead)) < n_bytes:
        if not (line := next(lines, b"")):
            break
        ahead.append(line)
    return is_utf16(b"".join(ahead)[:4096]), chain(ahead, lines)


def is_utf16(raw: bytes) -> bool:
    """Return whether bytes look like UTF-16 without a BOM: every other byte is NUL.

    Such bytes are also valid UTF-8, in which NUL is an ordinary character, so a minimum number of letters is required.
    """
    if b"\0" not in raw:
        return False
    zeros = even, odd = raw[::2].count(0), raw[1::2].count(0)
    n_letters = sum(byte not in b"\0\r\n" for byte in raw[int(even > odd) :: 2])
    return n_letters >= _MIN_UTF16_LETTERS and 3 * max(zeros) > len(raw) and 10 * min(zeros) < max(zeros)


def flush_interval(source: Path) -> float | None:
    """Return the idle seconds after which a batch is yielded early; None for a file.

    Batches of a file are always full, so they are the same in every run, however slowly the file is read.
    """
    return _FLUSH_SECONDS if is_stream(source) else None


def read_line_batches(source: Path, most: int, strict: bool, warn: Callable[[str], None]) -> Iterator[list[str]]:
    """Yield lists of at most ``most`` lines, and shorter ones when a stream pauses.

    Args:
        source: File to read; ``-`` is standard input.
        most: Maximum number of lines per list.
        strict: Raise ``DataError`` for bytes that are not UTF-8 instead of replacing them with U+FFFD.
        warn: Called after the last list with each warning about replaced or dropped bytes.
    """
    lines = LineReader(source, on_bad="refuse" if strict else "replace")
    yield from line_batches(lines, most, flush_interval(source))
    for message in encoding_warnings(lines.counts, source):
        warn(message)


def line_batches(
    items: Iterable[Item], most: int, patience: float | None = _FLUSH_SECONDS, size: Callable[[Item], int] | None = None
) -> Iterator[list[Item]]:
    """Group items into lists, limited by ``most`` items and ``MAX_CHARACTERS``.

    With ``patience``, a list also ends after that many seconds without a new item. An error in reading is raised after
    the items before it have been yielded; without ``patience``, this holds only for ``AttnkitError``.

    Args:
        size: Returns the number of characters of an item; by default, the length of a line and 0 for other items.
    """
    measure = size or (lambda item: len(item) if isinstance(item, str) else 0)
    arrivals = items if patience is None else _read_ahead(items, 2 * most, patience, measure)
    late_errors: type[Exception] = AttnkitError if patience is None else Exception
    window: list[Item] = []
    n_characters = 0
    try:
        for item in arrivals:
            if item is not _PAUSE:
                window.append(item)
                n_characters += measure(item)
            if len(window) == most or n_characters >= MAX_CHARACTERS or (item is _PAUSE and window):
                yield window
                window, n_characters = [], 0
    except late_errors:
        if window:
            yield window
        raise
    if window:
        yield window


def _read_ahead(items: Iterable[Item], most: int, patience: float, measure: Callable[[Item], int]) -> Iterator[Item]:
    """Yield each item, and ``_PAUSE`` after ``patience`` seconds without a new one.

    A thread reads the items, since a blocking read cannot time out. It is ahead by at most ``most`` items and about
    ``MAX_CHARACTERS`` characters.
    """
    waiting: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue(maxsize=most)
    taken = threading.Condition()
    n_characters = 0

    def read() -> None:
        nonlocal n_characters
        try:
            for item in items:
                with taken:
                    while n_characters >= MAX_CHARACTERS:
                        taken.wait()
                    n_characters += measure(item)
                waiting.put((item,))
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True, name="attnkit reader").start()
    timeout = None  # nothing to flush yet
    while True:
        try:
            arrival = waiting.get(timeout=timeout)
        except queue.Empty:
            timeout = None
            yield _PAUSE
            continue
        if isinstance(arrival, BaseException):
            raise arrival
        if arrival is None:
            return
        with taken:
            n_characters -= measure(arrival[0])
            taken.notify()
        timeout = patience
        yield arrival[0]


def encoding_warnings(counts: LineCounts, source: Path) -> list[str]:
    """Return warnings about invalid UTF-8 and about line ends that were changed."""
    name = "standard input" if str(source) == "-" else str(source)
    warnings = []
    if counts.n_bad:
        where = f"{name}:{counts.first_bad}"
        warnings.append(f"{counts.n_bad} lines are not UTF-8, the first at {where}; invalid bytes replaced with U+FFFD")
    if counts.n_carriage_returns:
        warnings.append(f"{counts.n_carriage_returns} lines of {name} ended in a carriage return, which was dropped")
    if counts.n_line_breaks:
        warnings.append(f"{counts.n_line_breaks} values of {name} have line breaks, which became spaces")
    return warnings
