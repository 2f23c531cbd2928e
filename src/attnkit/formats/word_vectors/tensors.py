"""Word vectors in safetensors, or in ``.npy`` files with a separate word list."""

import json
import math
import mmap
from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError
from attnkit.formats.word_vectors.table import MAX_WIDTH, VectorTable, check_no_blanks, finite_blocks
from attnkit.io.safe_read import parse_json

_HEAD = 192  #: bytes of the header, enough for any number of rows; a multiple of 64, to align mapped arrays


def write_matrix(stream: BinaryIO, blocks: Iterable[NDArray[Any]]) -> None:
    """Write blocks (n, width) as the tensor ``vectors`` to a seekable stream."""
    n_rows, width = 0, 0
    for block in blocks:
        if not width:
            width = block.shape[1]
            stream.write(_head(0, width))
        stream.write(block.astype("<f4", copy=False).tobytes())
        n_rows += len(block)
    stream.seek(0)
    stream.write(_head(n_rows, width))


def _head(n_rows: int, width: int) -> bytes:
    entry = {"dtype": "F32", "shape": [n_rows, width], "data_offsets": [0, 4 * n_rows * width]}
    head = json.dumps({"vectors": entry}).encode().ljust(_HEAD - 8)
    return len(head).to_bytes(8, "little") + head


_MAX_HEADER = 1 << 24
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "U8": "u1"}
_LIST = "write one word per line to NAME.words.txt in the same folder, e.g. vectors.words.txt for vectors.npy"

Buffer = bytes | mmap.mmap


def map_tensors(data: Buffer, name: str) -> dict[str, NDArray[Any]]:
    """Return tensors as views, if numpy has the dtype; raise ``DataError`` if invalid."""
    size = int.from_bytes(data[:8], "little")
    try:
        if len(data) < 8 or size > min(_MAX_HEADER, len(data) - 8):
            raise ValueError("it is too short for its header")
        tree = parse_json(bytes(data[8 : 8 + size]))
        if not isinstance(tree, dict):
            raise ValueError("its header is not a list of tensors")
        found, base = {}, 8 + size
        for key, entry in tree.items():
            if key == "__metadata__" or entry["dtype"] not in _TYPES:
                continue
            shape, (begin, end), dtype = entry["shape"], entry["data_offsets"], np.dtype(_TYPES[entry["dtype"]])
            if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)) or len(shape) > 8:
                raise ValueError("a tensor has an invalid shape")
            n = math.prod(shape)
            if end - begin != n * dtype.itemsize or not base + begin <= base + end <= len(data):
                raise ValueError("a tensor extends beyond the file")
            found[key] = np.frombuffer(data, dtype, n, base + begin if n else 0).reshape(shape)
        return found
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"this is not a safetensors file: {str(error)[:200]}"
        raise DataError(what, where=name, help="the file is damaged or truncated: create it again") from error


def read_tensors(data: Buffer, name: str) -> tuple[NDArray[Any], VectorTable | None]:
    """Return the rows of a safetensors file, and a table if it contains the words.

    Raises ``DataError`` if the file is invalid, its tensors do not match, or several matrices could be the vectors.
    """
    tensors = map_tensors(data, name)
    matrices = {key: found for key, found in tensors.items() if found.ndim == 2 and found.dtype.kind == "f"}
    rows = matrices.get("vectors")
    if rows is None:
        if len(matrices) != 1:
            held = ", ".join(list(tensors)[:8]) or "no readable tensors"
            help = f"name the matrix 'vectors'; the file contains {held}"
            what = "ambiguous: several tensors could be the vectors" if matrices else "no tensor is a matrix of floats"
            raise DataError(what, where=name, help=help)
        (rows,) = matrices.values()
    check_shape(rows, name)
    if (raw := tensors.get("words")) is None:
        return rows, None
    words = words_of(raw.tobytes(), len(rows), f"{name}, tensor words")
    counts = tensors.get("counts")
    if counts is not None and (counts.dtype != np.int64 or counts.shape != (len(rows),)):
        raise DataError("the number of counts differs from the number of words", where=f"{name}, tensor counts")
    return rows, VectorTable(words, rows, counts)


def check_shape(rows: NDArray[Any], name: str) -> None:
    """Raise ``DataError`` unless an array is a non-empty matrix of floats."""
    if not len(rows) or not 0 < rows.shape[1] <= MAX_WIDTH or rows.dtype.kind != "f":
        what = f"these are {len(rows):,} rows of {rows.shape[1]:,} numbers of type {rows.dtype}, not word vectors"
        raise DataError(what, where=name)


def words_of(raw: bytes, n_words: int, name: str) -> list[str]:
    """Parse a word list, one per line up to a tab; raise ``DataError`` if invalid."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"byte 0x{raw[error.start]:02X} is not UTF-8", where=f"{name}:{line}") from error
    words = text.removesuffix("\n").replace("\r\n", "\n").split("\n")
    if "\t" in text:
        words = [word.partition("\t")[0] for word in words]
    if len(words) != n_words:
        raise DataError(f"there are {len(words):,} words for {n_words:,} rows", where=name, help=_LIST)
    if not all(words):
        raise DataError("no word on this line", where=f"{name}:{words.index('') + 1}", help=_LIST)
    return words


def words_text(table: VectorTable) -> bytes:
    """Return the word list, one per line; raise ``DataError`` for a tab or line break."""
    check_no_blanks(table.words, "\t\r\n", "leave the word out")
    return "".join(f"{word}\n" for word in table.words).encode()


def write_tensors(stream: BinaryIO, table: VectorTable) -> None:
    """Write a table as safetensors; raise ``DataError`` for a tab or line break."""
    words = words_text(table)[:-1]
    n_words, width = table.rows.shape
    counts = b"" if table.counts is None else table.counts.astype("<i8").tobytes()
    parts: dict[str, tuple[str, list[int], int]] = {} if table.counts is None else {"counts": ("I64", [n_words], 8)}
    parts |= {"vectors": ("F32", [n_words, width], 4), "words": ("U8", [len(words)], 1)}
    tree: dict[str, Any] = {"__metadata__": {"format": "attnkit word vectors"}}
    place = 0
    for key, (dtype, shape, size) in parts.items():
        end = place + size * math.prod(shape)
        tree[key] = {"dtype": dtype, "shape": shape, "data_offsets": [place, end]}
        place = end
    head = json.dumps(tree).encode()
    head += b" " * (-len(head) % 8)
    stream.write(len(head).to_bytes(8, "little") + head + counts)
    for _, rows in finite_blocks(table):
        stream.write(rows.astype("<f4", copy=False).tobytes())
    stream.write(words)
