"""The ``.npy`` format: arrays mapped out of files that anybody may have made, and rows written as they come.

Nothing is taken into memory before the sizes that a header claims have been compared with the file.
"""

from __future__ import annotations

import io
import math
import tokenize
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError

_MAX_HEADER = 10_000  # bytes
_LENGTHS = {(1, 0): 2, (2, 0): 4}  # format version -> bytes that say how long the header is
_AGAIN = "it is damaged or cut off: fetch or write the file again"
_MALFORMED = (ValueError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError, tokenize.TokenError)


def map_npy(stream: BinaryIO, name: str) -> NDArray[Any]:
    """Map a ``.npy`` file of rows of numbers (n, columns), of any type of number; ``name`` is for messages.

    Raises:
        DataError: it is none, holds something else, or is shorter or longer than it says.
    """
    try:
        shape, fortran, dtype, offset = _header(stream)
    except _MALFORMED as error:
        what = f"this is no .npy file that can be read: {str(error)[:200]}"
        raise DataError(what, where=name, help=_AGAIN) from error
    if dtype.hasobject or dtype.kind not in "fiub":
        raise DataError(f"this array holds {_shown(dtype)}, not numbers", where=name)
    if len(shape) != 2 or not all(0 < n < 1 << 48 for n in shape):
        raise DataError(f"this array has the shape {_shown(shape)}, not rows and columns", where=name)
    size, claimed = stream.seek(0, io.SEEK_END) - offset, math.prod(shape) * dtype.itemsize
    if size != claimed:
        raise DataError(f"its header tells of {claimed:,} bytes, and there are {size:,}", where=name, help=_AGAIN)
    order: Any = "F" if fortran else "C"
    return np.memmap(stream, dtype, "r", offset, shape, order).view(np.ndarray)


def write_npy(stream: BinaryIO, blocks: Iterable[NDArray[Any]]) -> None:
    """Write blocks of rows (n, columns), of one width, as one array of float32, into a stream that can be rewound."""
    n_rows, width = 0, 0
    for block in blocks:
        if not width:
            width = block.shape[1]
            _write_head(stream, 0, width)
        stream.write(block.astype("<f4", copy=False).tobytes())
        n_rows += len(block)
    stream.seek(0)
    _write_head(stream, n_rows, width)  # as long as the first one: the format leaves room for the number of rows


def _write_head(stream: BinaryIO, n_rows: int, width: int) -> None:
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (n_rows, width)})


def _header(stream: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Return shape, whether columns come first, type, and where the numbers begin. Reads no more than the header."""
    begin = stream.read(8)
    version = np.lib.format.read_magic(io.BytesIO(begin))
    if version not in _LENGTHS:
        raise ValueError(f"it is of version {version[0]}.{version[1]}")
    length = stream.read(_LENGTHS[version])
    n_header = int.from_bytes(length, "little")
    if n_header > _MAX_HEADER:
        raise ValueError(f"its header has {n_header:,} bytes")
    raw = io.BytesIO(length + stream.read(n_header))
    reads = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = reads(raw)
    return shape, fortran, dtype, 8 + raw.tell()


def _shown(value: object) -> str:
    return str(value)[:80]
