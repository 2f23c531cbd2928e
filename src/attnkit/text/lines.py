r"""Text files as lines: plain or compressed, split at ``\n`` and nowhere else, every oddity counted.

Knows nothing of tokens. What two files have to do with each other is in ``parallel``.
"""

from __future__ import annotations

import bz2
import difflib
import errno
import gzip
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal, cast

from attnkit.errors import AttnkitError, DataError, SystemFailure, UsageError
from attnkit.files import failure

STDIN = Path("-")
BOM = "\ufeff"

_OPENERS: dict[str, Callable[[Path], object]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
MAX_BYTES = 1 << 26
"""Of one line: what has more is no text by lines, and may never end."""

_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError)
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
_UTF_16 = "the file looks like UTF-16; convert it: iconv -f UTF-16 -t UTF-8"
_MAGIC = {
    b"\x1f\x8b": "the file looks gzip-compressed: name it .gz",
    b"\xfd7zXZ": "the file looks xz-compressed: name it .xz",
    b"BZh": "the file looks bzip2-compressed: name it .bz2",
    b"PK\x03\x04": "the file looks like a zip archive: unpack it first",
    b"\xff\xfe\0\0": "the file looks like UTF-32; convert it: iconv -f UTF-32 -t UTF-8",
    b"\0\0\xfe\xff": "the file looks like UTF-32; convert it: iconv -f UTF-32 -t UTF-8",
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
}


@dataclass
class LineCounts:
    """What has been read of one file so far."""

    n_lines: int = 0
    n_carriage_returns: int = 0
    r"""Lines that ended in ``\r\n``; the ``\r`` was dropped."""
    n_bad: int = 0
    """Lines with bytes that are no UTF-8."""
    first_bad: int | None = None
    """Number of the first such line, counted from 1."""
    guess: str | None = None
    """What the file may be, if its first line is no UTF-8."""
    byte_order_mark: bool = False
    """The file began with U+FEFF, which was dropped."""


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading, unpacking ``.gz``, ``.xz`` and ``.bz2``; ``-`` is standard input.

    Raises:
        UsageError: The path does not exist or is a folder.
        SystemFailure: It cannot be read.
    """
    if path == STDIN:
        if sys.stdin is None:
            raise SystemFailure("cannot read standard input: it is closed", help="name a file to read")
        return sys.stdin.buffer
    try:
        return cast(BinaryIO, _OPENERS.get(path.suffix.lower(), _open_plain)(path))
    except (OSError, *_DAMAGE) as error:
        raise _failure(path, 0, error) from error
    except ValueError as error:
        raise UsageError(f"{str(path)!r} is no name of a file", help="check the spelling of the path") from error


def _open_plain(path: Path) -> BinaryIO:
    return path.open("rb", buffering=1 << 20)


def is_stream(path: Path) -> bool:
    """Return whether what a path gives comes as somebody sends it: from a pipe, a terminal or a device, not a file."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if path == STDIN else path.stat().st_mode
    except (OSError, ValueError, AttributeError):  # missing or closed, which is for its reader to tell
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def only_once(path: Path) -> bool:
    """Return whether a path can be read a single time: standard input, wherever it comes from, and streams."""
    return path == STDIN or is_stream(path)


def refuse_streams(paths: Iterable[Path]) -> None:
    """Refuse paths that can be read only once, before work that reads its text several times.

    Raises:
        UsageError: There is such a path.
    """
    path = next(filter(only_once, paths), None)
    if path is not None:
        name = "standard input" if path == STDIN else path
        raise UsageError(f"{name} can be read only once, and is read several times", help="write it to a file first")


def refuse_overwriting(output: Path | None, texts: Iterable[Path]) -> None:
    """Refuse an output file that is one of the texts to be read, standard input among them.

    Raises:
        UsageError: It is.
    """
    if output is None or not output.is_file():
        return
    for path in texts:
        with suppress(OSError, ValueError, AttributeError):  # missing or closed, which is for its reader to tell
            found = os.fstat(sys.stdin.fileno()) if path == STDIN else path.stat()
            if os.path.samestat(found, output.stat()):
                raise UsageError(f"{output} is one of the texts", help="give another name to -o")


class LineReader:
    r"""The lines of one file, without their ``\n``; iterate once, ``counts`` is true at every moment.

    A ``\r`` before the ``\n`` is dropped and counted, and so is a byte-order mark at the very start.
    With ``on_bad="replace"`` bytes that are no UTF-8 become U+FFFD; otherwise they raise ``DataError``.
    """

    def __init__(self, path: Path, *, on_bad: Literal["refuse", "replace"] = "refuse") -> None:
        self.path = path
        self.counts = LineCounts()
        self._on_bad = on_bad

    def __iter__(self) -> Iterator[str]:
        counts = self.counts
        with _opened(self.path, counts) as raw_lines:
            for raw in iter(partial(raw_lines.readline, MAX_BYTES + 1), b""):
                counts.n_lines += 1
                if len(raw) > MAX_BYTES:
                    raise endless(self.path, counts.n_lines)
                try:
                    if counts.n_lines == 1 and _is_utf16(raw):
                        raise UnicodeDecodeError("utf-8", raw, raw.index(b"\0"), raw.index(b"\0") + 1, "UTF-16")
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    line = self._mend(raw, error)
                if line.endswith("\n"):
                    line = line[:-1]
                if line.endswith("\r"):
                    line = line[:-1]
                    counts.n_carriage_returns += 1
                if counts.n_lines == 1 and line.startswith(BOM):
                    line = line[1:]
                    counts.byte_order_mark = True
                yield line

    def _mend(self, raw: bytes, error: UnicodeDecodeError) -> str:
        counts = self.counts
        if self._on_bad == "refuse":
            raise undecodable(self.path, counts.n_lines, raw, error) from error
        counts.n_bad += 1
        if counts.n_lines == 1:
            counts.guess = _guess(raw)
        if counts.first_bad is None:
            counts.first_bad = counts.n_lines
        return raw.decode("utf-8", errors="replace")


def read_lines(path: Path, *, on_bad: Literal["refuse", "replace"] = "refuse") -> Iterator[str]:
    """Yield the lines of a file as ``LineReader`` does, for callers that need no counts."""
    return iter(LineReader(path, on_bad=on_bad))


def count_lines(path: Path) -> int:
    r"""Return how many lines ``read_lines`` would yield; a last one without its ``\n`` counts.

    Raises:
        DataError: The file is empty, or compressed and damaged or cut off.
    """
    counts, last = LineCounts(), b"\n"
    with _opened(path, counts) as stream:
        while block := stream.read(1 << 20):
            counts.n_lines += block.count(b"\n")
            last = block[-1:]
    n_lines = counts.n_lines + (last != b"\n")
    if not n_lines:
        raise DataError("this file is empty", where=str(path))
    return n_lines


@contextmanager
def _opened(path: Path, counts: LineCounts) -> Iterator[BinaryIO]:
    """Yield a file to read from, close it, and name the line in ``counts`` after which reading it fails.

    Raises:
        DataError: A compressed file is damaged or cut off.
        SystemFailure: It cannot be read.
    """
    handle = open_binary(path)
    try:
        yield handle
    except (OSError, *_DAMAGE) as error:
        raise _failure(path, counts.n_lines, error) from error
    finally:
        if path != STDIN:
            handle.close()


def undecodable(path: Path, line: int, raw: bytes, error: UnicodeDecodeError) -> DataError:
    """Return the error for bytes that are no UTF-8, with a guess at what the file is."""
    byte = raw[error.start]
    help = (_guess(raw) if line == 1 else None) or "convert the file to UTF-8 (iconv), or mend the line"
    what = f"byte 0x{byte:02X} is no UTF-8 (byte {error.start + 1} of the line)"
    return DataError(what, where=f"{path}:{line}", help=help)


def endless(path: Path, line: int) -> DataError:
    """Return the error for a line of more than ``MAX_BYTES``."""
    help = "name a text file, one sentence a line"
    return DataError(f"this line has more than {MAX_BYTES:,} bytes", where=f"{path}:{line}", help=help)


def _guess(raw: bytes) -> str | None:
    """Return what a file that begins with these bytes may be."""
    for magic, text in _MAGIC.items():
        if raw.startswith(magic):
            return text
    if _is_utf16(raw):
        return _UTF_16
    return "the file looks binary: name a text file" if b"\0" in raw else None


def _is_utf16(raw: bytes) -> bool:
    """Return whether a file's first line looks like UTF-16 without a mark: of plain letters, every other byte is 0."""
    if b"\0" not in raw:
        return False
    even, odd = raw[::2].count(0), raw[1::2].count(0)
    return 3 * max(even, odd) > len(raw) and 10 * min(even, odd) < max(even, odd)


def _failure(path: Path, line: int, error: Exception) -> AttnkitError:
    if isinstance(error, OSError) and error.errno in _NO_FILE:
        near = difflib.get_close_matches(path.name, _neighbours(path), n=1)
        hint = f"did you mean {path.with_name(near[0])}?" if near else "check the spelling of the path"
        return UsageError(f"there is no file {path}", help=hint)
    if isinstance(error, IsADirectoryError):
        return UsageError(f"{path} is a folder", help="name a text file in it")
    if isinstance(error, _DAMAGE):
        return DataError(f"the compressed file is damaged or cut off: {error}", where=f"{path}, after line {line}")
    if isinstance(error, OSError) and path.suffix.lower() == ".bz2" and error.errno is None:
        return DataError(f"the compressed file is damaged: {error}", where=f"{path}, after line {line}")
    if isinstance(error, OSError):
        return failure("read", path, error)
    return SystemFailure(f"cannot read {path}: {error}")


def _neighbours(path: Path) -> list[str]:
    try:
        return [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return []
