"""The ``.npy`` format: arrays mapped from files of any origin, and rows written as they come."""

from __future__ import annotations

import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError

_AGAIN = "it is damaged or cut off: fetch or write the file again"
_MALFORMED = (
    ValueError,
    TypeError,
    EOFError,
    SyntaxError,
    OverflowError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)


def map_npy(path: Path) -> NDArray[Any]:
    """Map a ``.npy`` file of rows of numbers (n, columns), of any type of number.

    Raises:
        DataError: it is none, holds something else, or is shorter or longer than its header says.
    """
    try:
        with np.errstate(over="ignore"):  # of sizes that a hostile header claims
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _MALFORMED as error:
        raise DataError(f"not a readable .npy file: {str(error)[:200]}", where=str(path), help=_AGAIN) from error
    if not isinstance(array, np.memmap):
        raise DataError("not a readable .npy file: an archive", where=str(path), help=_AGAIN)
    if array.dtype.kind not in "fiub":
        raise DataError(f"this array holds {str(array.dtype)[:80]}, not numbers", where=str(path))
    if array.ndim != 2 or not all(array.shape):
        raise DataError(f"this array has the shape {str(array.shape)[:80]}, not rows and columns", where=str(path))
    if (size := path.stat().st_size - array.offset) != array.nbytes:
        what = f"its header claims {array.nbytes:,} bytes, and there are {size:,}"
        raise DataError(what, where=str(path), help=_AGAIN)
    return array.view(np.ndarray)


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
