"""Numeric arrays in untrusted ``.npy`` and ``.csv`` files. Torch-free."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from attnkit.errors import DataError
from attnkit.text.lines import check_not_streams, open_binary, read_lines

Vectors = npt.NDArray[np.float32]
MAX_COLUMNS = 1 << 16  #: maximum vector size
_BLOCK = 1 << 18  # numbers per block
_AGAIN = "the file is damaged or truncated: create it again"
_MALFORMED = (ValueError, TypeError, EOFError, SyntaxError, OverflowError, RecursionError, MemoryError, TokenError)


def map_npy(path: Path) -> npt.NDArray[Any]:
    """Memory-map a ``.npy`` file of numeric rows (n, columns) of any dtype.

    Raises:
        DataError: The file is not a two-dimensional numeric array, or its size differs from the header.
    """
    check_not_streams([path])
    try:
        # ``open_binary`` reports why a file cannot be read. Sizes in a malicious header may overflow.
        with open_binary(path), np.errstate(over="ignore"):
            array = np.load(path, mmap_mode="r", allow_pickle=False)
    except _MALFORMED as error:
        raise DataError(f"not a readable .npy file: {str(error)[:200]}", where=str(path), help=_AGAIN) from error
    if not isinstance(array, np.memmap):
        raise DataError("not a readable .npy file: .npz archive", where=str(path), help=_AGAIN)
    if array.dtype.kind not in "fiub":
        raise DataError(f"this array has dtype {str(array.dtype)[:80]}, not numbers", where=str(path))
    if array.ndim != 2 or not all(array.shape):
        raise DataError(f"this array has shape {str(array.shape)[:80]}, not two dimensions", where=str(path))
    if (size := path.stat().st_size - array.offset) != array.nbytes:
        what = f"its header declares {array.nbytes:,} bytes, but the file has {size:,}"
        raise DataError(what, where=str(path), help=_AGAIN)
    return array.view(np.ndarray)


def write_npy(stream: BinaryIO, blocks: Iterable[npt.NDArray[Any]]) -> None:
    """Write blocks of rows (n, columns) as one float32 array to a seekable stream."""
    header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (0, 0)}
    n_rows = 0
    for block in blocks:
        if not header["shape"][1]:
            np.lib.format.write_array_header_1_0(stream, {**header, "shape": (0, block.shape[1])})
        stream.write(block.astype("<f4", copy=False).tobytes())
        n_rows += len(block)
        header["shape"] = (n_rows, block.shape[1])
    stream.seek(0)
    # The final header is as long as the first: the format reserves space for the number of rows.
    np.lib.format.write_array_header_1_0(stream, header)


def read_vectors(path: Path, width: int | None = None) -> Iterator[Vectors]:
    """Yield the rows of a file in blocks (n, width) of float32.

    A ``.csv`` file has one vector per line, as comma-separated numbers. A first line without numbers is a header.

    Args:
        path: A two-dimensional ``.npy`` file or a ``.csv`` file.
        width: Numbers per row; None: as in the first row.

    Raises:
        DataError: The file has no rows, rows of different widths, or values that are not finite float32 numbers.
    """
    empty = True
    for block, lines in _npy_blocks(path) if path.suffix == ".npy" else _csv_blocks(path):
        if width is not None and block.shape[1] != width:
            raise DataError(f"a row has {block.shape[1]:,} numbers, not {width:,}", where=f"{path}:{lines[0]}")
        width = block.shape[1]
        if width > MAX_COLUMNS:
            raise DataError(f"a row has {width:,} numbers, more than {MAX_COLUMNS:,}", where=str(path))
        with np.errstate(over="ignore"):
            vectors = block.astype(np.float32)
        odd = np.flatnonzero(~np.isfinite(vectors).all(1))
        if len(odd):
            what = "this row contains a number that is not finite or is too large for float32"
            raise DataError(what, where=f"{path}:{lines[odd[0]]}")
        yield vectors
        empty = False
    if empty:
        raise DataError("no vectors in this file", where=str(path))


def _npy_blocks(path: Path) -> Iterator[tuple[npt.NDArray[Any], Sequence[int]]]:
    array = map_npy(path)
    size = max(1, _BLOCK // array.shape[1])
    for start in range(0, len(array), size):
        block = array[start : start + size]
        yield block, range(start + 1, start + 1 + len(block))


def _csv_blocks(path: Path) -> Iterator[tuple[npt.NDArray[Any], Sequence[int]]]:
    rows = _csv_rows(path)
    while head := next(rows, None):
        width = len(head[1])
        block, lines = [head[1]], [head[0]]
        for line, row in islice(rows, max(1, _BLOCK // width) - 1):
            if len(row) != width:
                raise DataError(f"this row has {len(row):,} numbers, not {width:,}", where=f"{path}:{line}")
            block.append(row)
            lines.append(line)
        yield np.array(block), lines


def _csv_rows(path: Path) -> Iterator[tuple[int, list[float]]]:
    """Yield the line number (from 1) and the numbers of each row."""
    for number, line in enumerate(read_lines(path), 1):
        fields = line.split(",")
        try:
            yield number, [float(field) for field in fields]
        except ValueError as error:
            if number == 1 and line.strip() and not any(map(_is_number, fields)):
                continue  # header
            odd = next(field for field in fields if not _is_number(field)).strip()[:40]
            what = f"{odd!r} is not a number" if odd else "a number is missing"
            raise DataError(what, where=f"{path}:{number}") from error


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
