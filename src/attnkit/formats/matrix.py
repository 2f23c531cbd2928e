"""One matrix as a safetensors file, written as its rows come."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, BinaryIO

from numpy.typing import NDArray

_HEAD = 192
"""Bytes before the numbers, enough for any number of rows; a multiple of 64, as mapped arrays like it."""


def write_matrix(stream: BinaryIO, blocks: Iterable[NDArray[Any]]) -> None:
    """Write blocks of rows (n, columns), of one width, as the tensor ``vectors``, into a stream that can be rewound."""
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
