"""Rows of numbers, or of text, on their way out: as lines, as JSON, as ``.npy`` and safetensors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from attnkit.data.arrays import write_npy
from attnkit.errors import UsageError
from attnkit.formats.word_vectors.tensors import write_matrix

Numbers = npt.NDArray[Any]
BINARY = {".npy": write_npy, ".safetensors": write_matrix}
"""Endings of files that hold numbers alone -> what writes them."""


@dataclass(frozen=True)
class EmbeddingBatch:
    """Some rows: numbers, or what came back."""

    numbers: Numbers | None
    """(n, columns); None where text came back."""
    texts: list[str] | None = None
    """Lines that came back."""
    inputs: list[str] | None = None
    """What the rows are of: lines, or pieces of a vocabulary."""


def empty(width: int) -> EmbeddingBatch:
    """Return a block without rows, for where none follows."""
    return EmbeddingBatch(np.empty((0, width), np.float32))


def render(block: EmbeddingBatch, separator: str, as_json: bool, of: str = "text", named: bool = False) -> list[str]:
    """Return a line of text for each row: its numbers with a separator between them, its text, or JSON.

    Args:
        block: the rows.
        separator: separator between numbers.
        as_json: one object per row.
        of: the key under which an object says what its row is of.
        named: begin each line with what it is of.
    """
    inputs: list[dict[str, Any]] = [{of: line} for line in block.inputs or ()]
    if block.texts is not None:
        if not as_json:
            return block.texts
        pairs = zip(inputs, block.texts, strict=True)
        return [json.dumps({**given, "reconstruction": text}, ensure_ascii=False) for given, text in pairs]
    assert block.numbers is not None
    # Nine digits tell any two 32-bit numbers apart.
    rows = [[format(number, ".9g") for number in row] for row in block.numbers.tolist()]
    if not as_json:
        names = [[name] for name in block.inputs or ()] if named else [[] for _ in rows]
        return [separator.join(name + row) for name, row in zip(names, rows, strict=True)]
    inputs = inputs or [{} for _ in rows]
    return [
        json.dumps({**given, "numbers": [float(number) for number in row]}, ensure_ascii=False)
        for given, row in zip(inputs, rows, strict=True)
    ]


def write_binary(path: Path, stream: BinaryIO, blocks: Iterable[EmbeddingBatch]) -> None:
    """Write all rows, block by block, in the format that a file's ending names (``BINARY``).

    Raises:
        UsageError: they are text, or the stream is a pipe: the number of rows stands at the beginning.
    """
    if not stream.seekable():
        what = f"a {path.suffix} file cannot be written into a pipe"
        raise UsageError(what, where="-o", help="name a file, or print text")
    BINARY[path.suffix.lower()](stream, (_numbers(block, path) for block in blocks))


def _numbers(block: EmbeddingBatch, path: Path) -> Numbers:
    if block.numbers is None:
        help = f"give another name than {path.suffix} to -o"
        raise UsageError("lines are not numbers", where="--reconstruct", help=help)
    return block.numbers
