"""Compressed output by suffix; ``.zst`` needs the extra ``zst``.

Equal text gives equal bytes: no names or times are stored. Parts that are compressed one by one are one valid file
together. Readers are in ``text.lines``.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from attnkit.io.safe_read import zstd_module

PACKERS: dict[str, Callable[[BinaryIO], object]] = {
    ".gz": lambda raw: gzip.GzipFile("", "wb", fileobj=raw, mtime=0),
    ".xz": lambda raw: lzma.LZMAFile(raw, "wb"),  # noqa: SIM115
    ".bz2": lambda raw: bz2.BZ2File(raw, "wb"),
    ".zst": lambda raw: zstd_module().ZstdFile(raw, mode="wb"),
}
"""Functions that return a compressing stream over a binary one; closing it leaves the other open."""


def open_packer(path: Path, raw: BinaryIO) -> BinaryIO:
    """Return a stream over ``raw`` that compresses as the suffix of ``path`` says."""
    return cast(BinaryIO, PACKERS[path.suffix.lower()](raw))


def pack(path: Path, data: bytes) -> bytes:
    """Return data compressed as the suffix of ``path`` says."""
    raw = io.BytesIO()
    with open_packer(path, raw) as stream:
        stream.write(data)
    return raw.getvalue()
