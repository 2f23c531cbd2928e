"""Reading and writing of word vectors: runs, checkpoints and files. Torch-free."""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from attnkit.checkpoints.checkpoint import FILE_NAME as MANIFEST
from attnkit.checkpoints.checkpoint import Checkpoint, open_checkpoint
from attnkit.checkpoints.run_folder import RunFolder, is_run
from attnkit.data.arrays import map_npy, write_npy
from attnkit.engine.checkpoint_metadata import checkpoint_scores, read_run_config
from attnkit.engine.model_card import count_parameters
from attnkit.engine.run_summary import RunSummary, find_languages
from attnkit.errors import DataError, RunError, UsageError
from attnkit.formats.word_vectors import tensors, text
from attnkit.formats.word_vectors.table import LOOKED_AT, Floats, Format, VectorTable, finite_blocks, recognised
from attnkit.io import atomic
from attnkit.text.files import OPENERS, LineCounts
from attnkit.text.lines import check_not_streams, opened

if TYPE_CHECKING:
    from attnkit.tasks.word2vec.config import Word2VecConfig
    from attnkit.text.word_vocabulary import WordVocabulary


def open_vectors(path: Path, checkpoint: str | None = None) -> VectorTable:
    """Open the word vectors of a run, a checkpoint or a file; see ``open_described``."""
    return open_described(path, checkpoint)[0]


def open_described(path: Path, checkpoint: str | None = None) -> tuple[VectorTable, RunSummary | None]:
    """Open word vectors as ``open_vectors``, with the summary of a run.

    Args:
        path: run, checkpoint, vector file, or folder with TensorBoard's ``vectors.tsv`` and ``metadata.tsv``.
        checkpoint: name of a checkpoint of a run: best, last, averaged or step-N.

    Raises:
        DataError: the file is damaged or does not contain word vectors.
        RunError: the run is damaged or has no vectors.
        UsageError: ``path`` does not exist.
    """
    if not path.is_dir() or (path / MANIFEST).exists() or (path / text.VECTORS).exists():
        return _open_files(path), None
    if not is_run(path):
        what = f"no word vectors in the folder {path}"
        raise RunError(what, help="name a run of attnkit word2vec train, or a file of vectors")
    chosen, warnings = RunFolder(path).checkpoint(checkpoint)
    table = replace(_read_checkpoint(chosen), warnings=tuple(warnings))
    config = read_run_config(chosen, "word2vec")
    summary = RunSummary(
        path=path,
        task="word2vec",
        languages=find_languages(config.data),
        model=f"{config.method}, vectors of {table.rows.shape[1]}",
        checkpoint=chosen.name,
        scores=checkpoint_scores(chosen, config.metrics),
        n_parameters=count_parameters(chosen),
        vocab_size=len(table.words),
        device="cpu",
        precision="float32",
        engine="numpy",
    )
    return table, summary


def _open_files(path: Path) -> VectorTable:
    """Open the word vectors of a checkpoint, a file, or files for TensorBoard."""
    if path.is_dir():
        if (path / MANIFEST).exists():
            return _read_checkpoint(open_checkpoint(path, path.name))
        return _read_projector(path / text.VECTORS)
    check_not_streams([path])
    if path.suffix.lower() == ".tsv":
        return _read_projector(path)
    with opened(path, LineCounts()) as stream:
        format = recognised(stream.read(LOOKED_AT), str(path))  # by its first bytes
    if format == "npy":
        rows = map_npy(path)
        tensors.check_shape(rows, str(path))
        return VectorTable(_words_beside(path, len(rows)), rows)
    if format == "safetensors":
        rows, table = tensors.read_tensors(_mapped(path), str(path))
        return table or VectorTable(_words_beside(path, len(rows)), rows)
    if format == "word2vec-binary":
        return text.read_binary(_mapped(path), str(path))
    with opened(path, LineCounts()) as stream:
        return text.read_text(stream, str(path))


def width_at(path: Path) -> int:
    """Return the dimension D of the vectors at a path; errors as in ``open_vectors``."""
    if not (path / text.VECTORS).exists() and is_run(path):
        return int(read_run_config(RunFolder(path).checkpoint()[0], "word2vec").dim)
    if not path.is_dir() and path.suffix.lower() != ".tsv":
        check_not_streams([path])
        with opened(path, LineCounts()) as stream:
            begin = stream.read(LOOKED_AT)
            if recognised(begin, str(path)) in ("word2vec", "glove", "word2vec-binary"):
                return text.width_of(begin + stream.readline(), str(path))
    return int(open_vectors(path).rows.shape[1])


def _read_checkpoint(checkpoint: Checkpoint) -> VectorTable:
    """Return the vectors of a checkpoint, mapped or, with subwords, composed."""
    from attnkit.tasks.word2vec import matrices

    config, words = read_run_config(checkpoint, "word2vec"), matrices.read_words(checkpoint)
    path = checkpoint.path / matrices.FILE
    shape = matrices.shapes(config, len(words))[matrices.INPUTS]
    if path.is_symlink() or not path.is_file() or path.stat().st_size != checkpoint.entry(matrices.FILE).size:
        raise RunError(f"{matrices.FILE} of checkpoint {checkpoint.name} is damaged", where=str(path))
    found = tensors.map_tensors(_mapped(path), str(path))
    inputs, outputs = found.get(matrices.INPUTS), found.get(matrices.OUTPUTS)
    fit = inputs is not None and inputs.shape == (shape.n, shape.width) and inputs.dtype == np.float32
    if inputs is None or outputs is None or not fit or (config.method == "glove" and outputs.shape != inputs.shape):
        raise RunError(f"the weights of checkpoint {checkpoint.name} do not fit its configuration", where=str(path))
    return composed_vectors(config, words, inputs, outputs)


def composed_vectors(config: Word2VecConfig, words: WordVocabulary, inputs: Floats, outputs: Floats) -> VectorTable:
    """Return the vectors of all words, with subwords composed from their n-grams."""
    from attnkit.tasks.word2vec.matrices import wanted
    from attnkit.text.word_vocabulary import Subwords, composed

    if (cut := config.subwords) is None:
        return VectorTable(words.words, wanted(config, inputs, outputs), words.counts)
    subwords = Subwords(cut.min_n, cut.max_n, cut.buckets)
    rows, buckets = composed(inputs, *subwords.tables(words.words)), inputs[len(words) :]
    return VectorTable(words.words, rows, words.counts, unseen=lambda word: subwords.vector(word, buckets))


def _read_projector(path: Path) -> VectorTable:
    beside = path.with_name(path.name.replace("vectors", "metadata"))
    if beside == path or not beside.is_file():
        what = f"the words of {path.name} are missing: TensorBoard keeps them in metadata.tsv"
        raise DataError(what, where=str(path), help=f"put {text.METADATA} into the same folder")
    with opened(path, LineCounts()) as stream:
        rows = text.read_projector(stream, str(path))
    raw = text.without_header(_read(beside), len(rows))
    return VectorTable(tensors.words_of(raw, len(rows), str(beside)), rows)


def _words_beside(path: Path, n_words: int) -> list[str]:
    """Return the words of a file without words, from a word list in the same folder."""
    names = [path.with_suffix(ending).name for ending in (".words.txt", ".words.tsv", ".txt", ".vocab")]
    for name in (*names, "words.tsv", "words.txt"):
        if (beside := path.with_name(name)).is_file():
            return tensors.words_of(_read(beside), n_words, str(beside))
    what = f"{path.name} has no word list"
    raise DataError(what, where=str(path), help=f"write one word per line to {path.with_suffix('.words.txt')}")


def _read(path: Path) -> bytes:
    with opened(path, LineCounts()) as stream:
        return stream.read()


def _mapped(path: Path) -> tensors.Buffer:
    """Return the bytes of a file, memory-mapped unless it is compressed."""
    with opened(path, LineCounts()) as stream:
        if path.suffix.lower() in OPENERS:
            return stream.read()
        try:
            return mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
        except ValueError as error:
            raise DataError("this file is empty", where=str(path)) from error


def write_vectors(path: Path, table: VectorTable, format: Format) -> None:
    """Write vectors: ``projector`` is a folder, ``npy`` adds a ``.words.txt`` file.

    Raises:
        DataError: the format cannot represent a word.
        UsageError: the folder is not empty, or the format cannot be written to a pipe.
        SystemFailure: writing to disk fails.
    """
    if format == "projector":
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UsageError(f"{path} exists and is not an empty folder", help="choose a new folder")
        metadata = text.metadata_text(table)
        with atomic.atomic_dir(path) as folder:
            with atomic.create_exclusive(folder / text.VECTORS) as rows_file:
                text.write_projector(rows_file, table)
            atomic.write_new_file(folder / text.METADATA, metadata)
        return
    if format == "npy":
        if path.exists() and not path.is_file():
            raise UsageError("a .npy file cannot be written to a pipe or device", where=str(path))
        atomic.write_bytes(path.with_suffix(".words.txt"), tensors.words_text(table))
    with atomic.open_output(path) as stream:
        if format == "npy":
            write_npy(stream.buffer, (rows for _, rows in finite_blocks(table)))
        elif format == "safetensors":
            tensors.write_tensors(stream.buffer, table)
        elif format == "word2vec-binary":
            text.write_binary(stream.buffer, table)
        else:
            text.write_lines(stream.buffer, table, head=format != "glove")
