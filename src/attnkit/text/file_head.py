"""The beginning of a text, and how much of it that is. Knows nothing of what it is read for."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from attnkit.text.lines import LineCounts, opened

_UNPACK: dict[str, Callable[[BinaryIO], object]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


@dataclass(frozen=True)
class FileHead:
    """Whole lines or words from the beginning of a file, unpacked."""

    raw: bytes
    share: float
    """Of the file, about; 1 is all of it."""


def read_head(path: Path, n_bytes: int) -> FileHead:
    """Return the beginning of a file; errors as ``lines.opened``."""
    with opened(path, LineCounts()), path.open("rb") as packed:
        unpack = _UNPACK.get(path.suffix.lower())
        stream = packed if unpack is None else cast(BinaryIO, unpack(packed))
        raw, size = stream.read(n_bytes), path.stat().st_size
        at = packed.tell()
        if not stream.read(1):
            return FileHead(raw, 1.0)
    end = max(raw.rfind(b"\n"), raw.rfind(b" ")) + 1 or len(raw)
    return FileHead(raw[:end], min(1.0, at / size) if size else 1.0)
