"""Word vectors in files: a run, a checkpoint, or any format, read and written. Torch-free."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np

from attnkit.checkpoints.checkpoint import FILE_NAME as MANIFEST
from attnkit.checkpoints.checkpoint import Checkpoint, open_checkpoint
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.arrays import map_npy, write_npy
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.errors import DataError, RunError, UsageError
from attnkit.formats.word_vectors import projector, tensors, text
from attnkit.formats.word_vectors.formats import LOOKED_AT, Format, recognised
from attnkit.formats.word_vectors.table import Floats, VectorTable, finite_blocks
from attnkit.formats.word_vectors.tensors import words_text, write_tensors
from attnkit.formats.word_vectors.text import read_binary, write_binary, write_lines
from attnkit.io import atomic
from attnkit.text.lines import LineCounts, check_not_streams, opened

Unseen: TypeAlias = Callable[[str], "Floats | None"]
"""Gives the vector of a word that has no row, None where it has none either."""
PACKED = (".gz", ".xz", ".bz2")


@dataclass(frozen=True)
class LoadedVectors:
    """What lies at a path."""

    table: VectorTable
    unseen: Unseen | None = None
    warnings: tuple[str, ...] = ()


def open_vectors(path: Path, checkpoint: str | None = None) -> LoadedVectors:
    """Open word vectors.

    Args:
        path: run, checkpoint, file, or folder with TensorBoard's ``vectors.tsv`` and ``metadata.tsv``.
        checkpoint: of a run: best, last, averaged or step-N.

    Raises:
        DataError: a file that is broken, or holds something else.
        RunError: a run without vectors, or a damaged one.
        UsageError: there is nothing at ``path``.
    """
    if path.is_dir():
        if (path / MANIFEST).exists():
            return of_checkpoint(open_checkpoint(path, path.name))
        if (path / projector.VECTORS).exists():
            return LoadedVectors(_of_projector(path / projector.VECTORS))
        if not RunFolder(path).exists():
            what = f"no word vectors in the folder {path}"
            raise RunError(what, help="name a run of attnkit word2vec train, or a file of vectors")
        chosen, warnings = RunFolder(path).checkpoint(checkpoint)
        return replace(of_checkpoint(chosen), warnings=tuple(warnings))
    return LoadedVectors(open_table(path))


def open_table(path: Path, format: Format | None = None) -> VectorTable:
    """Open a file of vectors; its first bytes tell the format unless it is given. Errors as ``open_vectors``."""
    check_not_streams([path])
    if format is None and path.suffix.lower() == ".tsv":
        format = "projector"
    if format is None:
        with _stream(path) as stream:
            format = recognised(stream.read(LOOKED_AT), str(path))
    if format == "projector":
        return _of_projector(path / projector.VECTORS if path.is_dir() else path)
    if format == "npy":
        return _of_npy(path)
    if format == "safetensors":
        rows, table = tensors.read_tensors(_mapped(path), str(path))
        return table or VectorTable(_words_beside(path, len(rows)), rows)
    if format == "word2vec-binary":
        return read_binary(_mapped(path), str(path))
    with _stream(path) as stream:
        return text.read_text(stream, str(path))


def width_at(path: Path) -> int:
    """Return D, the numbers of the vectors at a path, as quickly as can be. Errors as ``open_vectors``."""
    if path.is_dir() and not (path / projector.VECTORS).exists() and RunFolder(path).exists():
        return int(read_run_config(RunFolder(path).checkpoint()[0], "word2vec").dim)
    if not path.is_dir() and path.suffix.lower() != ".tsv":
        check_not_streams([path])
        with _stream(path) as stream:
            begin = stream.read(LOOKED_AT)
            if recognised(begin, str(path)) in ("word2vec", "glove", "word2vec-binary"):
                return text.width_of(begin + stream.readline(), str(path))
    return int(open_vectors(path).table.rows.shape[1])


def of_checkpoint(checkpoint: Checkpoint) -> LoadedVectors:
    """Return the vectors of a run's checkpoint, mapped; where words are made of n-grams, composed of theirs."""
    from attnkit.tasks.word2vec import matrices
    from attnkit.text.word_vocabulary import Subwords, composed

    config, words = read_run_config(checkpoint, "word2vec"), matrices.read_words(checkpoint)
    path = checkpoint.path / matrices.FILE
    shape = matrices.shapes(config, len(words))[matrices.INPUTS]
    if path.is_symlink() or not path.is_file() or path.stat().st_size != checkpoint.entry(matrices.FILE).size:
        raise RunError(f"{matrices.FILE} of checkpoint {checkpoint.name} is not what was saved", where=str(path))
    found = tensors.map_tensors(_mapped(path), str(path))
    inputs, outputs = found.get(matrices.INPUTS), found.get(matrices.OUTPUTS)
    fit = inputs is not None and inputs.shape == (shape.n, shape.width) and inputs.dtype == np.float32
    if inputs is None or outputs is None or not fit or (config.method == "glove" and outputs.shape != inputs.shape):
        raise RunError(f"the weights of checkpoint {checkpoint.name} do not fit its configuration", where=str(path))
    if (cut := config.subwords) is None:
        return LoadedVectors(VectorTable(words.words, matrices.wanted(config, inputs, outputs), words.counts))
    subwords = Subwords(cut.min_n, cut.max_n, cut.buckets)
    rows, buckets = composed(inputs, *subwords.tables(words.words)), inputs[len(words) :]
    return LoadedVectors(VectorTable(words.words, rows, words.counts), lambda word: subwords.vector(word, buckets))


def _of_npy(path: Path) -> VectorTable:
    with _stream(path):  # says why a file cannot be opened
        rows = map_npy(path)
    tensors.check_shape(rows, str(path))
    return VectorTable(_words_beside(path, len(rows)), rows)


def _of_projector(path: Path) -> VectorTable:
    beside = path.with_name(path.name.replace("vectors", "metadata"))
    if beside == path or not beside.is_file():
        what = f"the words of {path.name} are missing: TensorBoard keeps them in metadata.tsv"
        raise DataError(what, where=str(path), help=f"put {projector.METADATA} beside it")
    with _stream(path) as stream:
        rows = projector.read_rows(stream, str(path))
    raw = projector.without_header(_read(beside), len(rows))
    return VectorTable(tensors.words_of(raw, len(rows), str(beside)), rows)


def _words_beside(path: Path, n_words: int) -> list[str]:
    """Return the words of a file that holds rows alone."""
    names = [path.with_suffix(ending).name for ending in (".words.txt", ".words.tsv", ".txt", ".vocab")]
    for name in (*names, "words.tsv", "words.txt"):
        if (beside := path.with_name(name)).is_file():
            return tensors.words_of(_read(beside), n_words, str(beside))
    what = f"{path.name} holds numbers alone, and no list of words lies beside it"
    raise DataError(what, where=str(path), help=f"write one word per line to {path.with_suffix('.words.txt')}")


def _stream(path: Path) -> AbstractContextManager[BinaryIO]:
    return opened(path, LineCounts())


def _read(path: Path) -> bytes:
    with _stream(path) as stream:
        return stream.read()


def _mapped(path: Path) -> tensors.Buffer:
    """Return the bytes of a file, mapped unless they have to be unpacked."""
    with _stream(path) as stream:
        if path.suffix.lower() in PACKED:
            return stream.read()
        try:
            return mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
        except ValueError as error:
            raise DataError("this file is empty", where=str(path)) from error


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
        raise UsageError(f"{path} exists, and is not an empty folder", help="name a new folder")
    metadata = projector.metadata_text(table)
    with atomic.atomic_dir(path) as folder:
        with atomic.create_exclusive(folder / projector.VECTORS) as stream:
            projector.write_rows(stream, table)
        atomic.write_new_file(folder / projector.METADATA, metadata)
