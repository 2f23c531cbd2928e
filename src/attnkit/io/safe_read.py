"""Reading files that a stranger may have made: plain files of a bounded size, and JSON of a bounded shape.

The counterpart of ``files``, which writes. Knows nothing of what it reads.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from attnkit.errors import system_failure

MAX_JSON_VALUES = 1 << 22
"""Numbers, texts, lists and mappings of one JSON text; each takes some 60 bytes once it is read."""


@contextlib.contextmanager
def open_regular_file(path: Path, *, follow: bool = False) -> Iterator[BinaryIO]:
    """Yield a plain file for reading, without waiting for a pipe or touching a device.

    A symbolic link is an ``OSError`` unless ``follow`` is set, which is for paths that a person has typed.

    Raises:
        ValueError: There is something else at ``path``.
        OSError: It cannot be opened or read.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    # Before there is a stream: making one of a folder is an error that leaves the descriptor open.
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("it is not a plain file")
    with os.fdopen(descriptor, "rb") as stream:
        yield stream


def is_file_fault(error: OSError) -> bool:
    """Return whether an error says something of what lies there, not of what this process may do and has left."""
    return error.errno not in (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def check_system(path: Path, error: Exception) -> None:
    """Raise ``SystemFailure`` if a failed read says nothing of the file: no permission, descriptors or memory."""
    if isinstance(error, OSError) and not is_file_fault(error):
        raise system_failure("read", path, error) from error


def read_regular_file(path: Path, most: int, *, follow: bool = False) -> bytes:
    """Return the content of a plain file of at most ``most`` bytes; errors as ``open_regular_file``'s.

    Raises:
        ValueError: It is longer, which is seen before anything is read.
    """
    with open_regular_file(path, follow=follow) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most:
            raise ValueError(f"it has {size:,} bytes, more than the {most:,} that such a file may have")
        return stream.read(min(most, size + 4096))  # takes room for all it is asked for, before it reads


def file_equals(path: Path, content: bytes) -> bool:
    """Return whether a plain file has this content; whatever else lies there has not."""
    try:
        return read_regular_file(path, len(content)) == content
    except (OSError, ValueError):
        return False


def parse_json(raw: bytes) -> Any:
    """Return what JSON text says, read strictly: a key stands once, numbers are finite, depth and count are bounded.

    Raises:
        ValueError: It is no such text; the message says why.
    """
    # Counted first: a megabyte of brackets would take forty as lists. Signs inside texts count too.
    if sum(raw.count(sign) for sign in (b",", b"[", b"{")) > MAX_JSON_VALUES:
        raise ValueError(f"it holds more than {MAX_JSON_VALUES:,} values")
    try:
        return json.loads(
            raw.decode("utf-8"), object_pairs_hook=_mapping, parse_float=_finite, parse_constant=_refuse_constant
        )
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is too large a number")
    return number


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")
