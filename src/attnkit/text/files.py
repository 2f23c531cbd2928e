"""Single files of text, plain or compressed, and the errors of reading them."""

import bz2
import difflib
import errno
import gzip
import lzma
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from attnkit.errors import AttnkitError, DataError, SystemFailure, UsageError, system_failure
from attnkit.io.safe_read import is_damage, open_zstd

STDIN = Path("-")
BOM = "\ufeff"
MAX_BYTES = 1 << 26  #: maximum length of a line; a longer one is hardly text and may never end
OPENERS: dict[str, Callable[[Any], object]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open, ".zst": open_zstd}
"""Functions that open compressed files, by suffix in lower case."""
_MAX_SHOWN = 12  # names of fields in a message
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
_UTF_16 = "the file looks like UTF-16; convert it: iconv -f UTF-16 -t UTF-8"
_MAGIC = {
    b"\x1f\x8b": "the file looks gzip-compressed: add .gz to its name",
    b"\xfd7zXZ": "the file looks xz-compressed: add .xz to its name",
    b"\x28\xb5\x2f\xfd": "the file looks zstd-compressed: add .zst to its name",
    b"BZh": "the file looks bzip2-compressed: add .bz2 to its name",
    b"PK\x03\x04": "the file looks like a zip archive: unpack it first",
    b"\xff\xfe\0\0": "the file looks like UTF-32; convert it: iconv -f UTF-32 -t UTF-8",
    b"\0\0\xfe\xff": "the file looks like UTF-32; convert it: iconv -f UTF-32 -t UTF-8",
    b"\xff\xfe": _UTF_16,
    b"\xfe\xff": _UTF_16,
}


@dataclass
class LineCounts:
    """Running counts of the lines read from one file."""

    n_lines: int = 0
    n_carriage_returns: int = 0  #: lines that ended in ``\r\n``; the ``\r`` was dropped
    n_bad: int = 0  #: lines that are not valid UTF-8
    first_bad: int | None = None  #: number of the first such line, counted from 1
    guess: str | None = None  #: guess at the file's format if its first line is not valid UTF-8
    n_line_breaks: int = 0  #: values of tables with line breaks, which became spaces; known at the end
    byte_order_mark: bool = False  #: whether the file started with U+FEFF, which was dropped


def open_file(path: Path) -> BinaryIO:
    """Open a single file like ``open_binary``, decompressing by its suffix."""
    if path == STDIN:
        if sys.stdin is None:
            raise SystemFailure("cannot read standard input: it is closed", help="name a file to read")
        return sys.stdin.buffer
    try:
        unpack = OPENERS.get(path.suffix.lower())
        return path.open("rb", buffering=1 << 20) if unpack is None else cast(BinaryIO, unpack(path))
    except OSError as error:
        raise _failure(path, 0, error) from error
    except ValueError as error:
        raise UsageError(f"{str(path)!r} is not a valid file name", help="check the spelling of the path") from error


def suffix_of(path: Path) -> str:
    """Return the suffix of a file in lower case, without that of its compression."""
    return (Path(path.stem) if path.suffix.lower() in OPENERS else path).suffix.lower()


def is_pattern(name: str) -> bool:
    """Return whether a name is a pattern for names of files.

    >>> is_pattern("a/*.en"), is_pattern("a?[0-9].en"), is_pattern("a[1.en")
    (True, True, False)
    """
    return bool(re.search(r"[*?]|\[.+\]", name))


def is_stream(path: Path) -> bool:
    """Return whether a path is a pipe, terminal or device, not a file or folder."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode if path == STDIN else path.stat().st_mode
    except (OSError, ValueError, AttributeError):  # missing or closed: its reader reports it
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def only_once(path: Path) -> bool:
    """Return whether a path can be read only once: standard input or a stream."""
    return path == STDIN or is_stream(path)


@contextmanager
def opened_file(
    path: Path, counts: LineCounts, open_path: Callable[[Path], BinaryIO] = open_file
) -> Iterator[BinaryIO]:
    """Open a file as a context manager; read errors name the line in ``counts``.

    Raises ``DataError`` for a damaged compressed file, and the errors of ``open_binary``.
    """
    handle = open_path(path)
    try:
        yield handle
    except Exception as error:
        if not isinstance(error, OSError) and not is_damage(error):
            raise
        raise _failure(path, counts.n_lines, error) from error
    finally:
        counts.n_line_breaks = getattr(getattr(handle, "raw", None), "n_line_breaks", 0)
        if path != STDIN:
            handle.close()


def undecodable(path: Path, line: int, raw: bytes, error: UnicodeDecodeError, before: int = 0) -> DataError:
    """Return the error for invalid UTF-8 in ``raw``, ``before`` bytes into the line."""
    known = guess(raw, error.encoding) if line == 1 and not before else None
    help = known or "convert the file to UTF-8 (iconv), or fix the line"
    what = f"byte 0x{raw[error.start]:02X} is not UTF-8 (byte {before + error.start + 1} of the line)"
    return DataError(what, where=f"{path}:{line}", help=help)


def endless(path: Path, line: int) -> DataError:
    """Return the error for a line of more than ``MAX_BYTES``."""
    help = "use a text file with one sentence per line"
    return DataError(f"this line has more than {MAX_BYTES:,} bytes", where=f"{path}:{line}", help=help)


def guess(raw: bytes, encoding: str) -> str | None:
    """Guess a file's format from its first bytes; return advice to show, or None."""
    for magic, text in _MAGIC.items():
        if raw.startswith(magic):
            return text
    if encoding == "utf-16":
        return _UTF_16
    return "the file looks binary: use a text file" if b"\0" in raw else None


def _failure(path: Path, line: int, error: Exception) -> AttnkitError:
    """Return the error for a failure to open a file, or to read it after ``line``."""
    if isinstance(error, OSError) and error.errno in _NO_FILE:
        names: list[str] = []
        with suppress(OSError):
            names = [entry.name for entry in path.parent.iterdir()]
        near = difflib.get_close_matches(path.name, names, n=1)
        hint = f"did you mean {path.with_name(near[0])}?" if near else "check the spelling of the path"
        return UsageError(f"no such file: {path}", help=hint)
    if isinstance(error, IsADirectoryError):
        return UsageError(f"{path} is a folder", help="name a text file in it")
    if is_damage(error) or (path.suffix.lower() == ".bz2" and getattr(error, "errno", 0) is None):
        what = f"the compressed file is damaged or truncated: {error}"
        where = f"{path}, after line {line}" if line else str(path)
        return DataError(what, where=where, help="download it again, or compress the text again")
    if isinstance(error, OSError):
        return system_failure("read", path, error)
    return SystemFailure(f"cannot read {path}: {error}")


def no_field(
    field: str,
    fields: Sequence[str],
    where: str,
    kind: str = "field",
    known: str | None = None,
    what: str | None = None,
) -> DataError:
    """Return the error for a field that a row lacks, with those that it has.

    ``known`` is advice instead of the names, ``what`` another fault of the field.
    """
    shown = ", ".join(name[:40] for name in fields[:_MAX_SHOWN])
    more = ", …" if len(fields) > _MAX_SHOWN else ""
    missing = f"no {kind} '{field}'" if fields.count(field) < 2 else f"several columns are called '{field}'"
    return DataError(what or missing, where=where, help=known or f"{kind}s: {shown}{more}")
