"""Writing word vectors in any format; a file appears when it is whole."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from attnkit.data.arrays import write_npy
from attnkit.errors import UsageError
from attnkit.formats.word_vectors import projector
from attnkit.formats.word_vectors.binary import write_binary
from attnkit.formats.word_vectors.formats import Format
from attnkit.formats.word_vectors.table import VectorTable, finite_blocks
from attnkit.formats.word_vectors.tensors import words_text, write_tensors
from attnkit.formats.word_vectors.text import write_lines
from attnkit.io import atomic


def write_vectors(path: Path, table: VectorTable, format: Format) -> None:
    """Write vectors. ``projector`` makes a folder, ``npy`` a list of words (``.words.txt``) beside its file.

    Raises:
        DataError: the format cannot keep a word.
        UsageError: a folder that is not empty, or a pipe where one cannot be written.
        SystemFailure: the disk refuses.
    """
    if format == "projector":
        _write_projector(path, table)
        return
    if format == "npy":
        if path.exists() and not path.is_file():
            raise UsageError("a .npy file cannot be written into a pipe or a device", where=str(path))
        atomic.write_bytes(path.with_suffix(".words.txt"), words_text(table))
    with atomic.open_output(path) as stream:
        _write(stream.buffer, table, format)


def _write(stream: BinaryIO, table: VectorTable, format: Format) -> None:
    if format == "npy":
        write_npy(stream, (rows for _, rows in finite_blocks(table)))
    elif format == "safetensors":
        write_tensors(stream, table)
    elif format == "word2vec-binary":
        write_binary(stream, table)
    else:
        write_lines(stream, table, head=format != "glove")


def _write_projector(path: Path, table: VectorTable) -> None:
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} exists, and is no empty folder", help="name a new folder")
    metadata = projector.metadata_text(table)
    with atomic.atomic_dir(path) as folder:
        with atomic.create_exclusive(folder / projector.VECTORS) as stream:
            projector.write_rows(stream, table)
        atomic.write_new_file(folder / projector.METADATA, metadata)
