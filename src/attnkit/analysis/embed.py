"""Embeddings and reconstructions of lines or vectors, one output row per input."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
import torch

from attnkit.analysis.embed_transformer import What, line_vectors, open_reader
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.arrays import read_vectors, write_npy
from attnkit.engine.compiled_language_models import set_precision
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.formats.ctranslate2 import entry_names
from attnkit.formats.word_vectors.table import ENDINGS, VectorTable
from attnkit.formats.word_vectors.tensors import write_matrix
from attnkit.kernels.simd.targets import Precision
from attnkit.runtime.devices import set_threads
from attnkit.tasks.autoencoding.config import VECTORS
from attnkit.tasks.autoencoding.lines import encode_lines, reconstruct
from attnkit.tasks.autoencoding.vectors import explained
from attnkit.tasks.language_modeling.config import holds_language
from attnkit.tasks.word2vec.vector_files import write_vectors
from attnkit.text.lines import read_line_batches

_WINDOW = 4096
BINARY = {".npy": write_npy, ".safetensors": write_matrix}  #: file suffix -> writer of a binary matrix


@dataclass(frozen=True)
class Request:
    """Request of ``attnkit embed``."""

    run: Path
    files: list[Path]  #: text or vector files; ``-`` is standard input
    reconstruct: bool = False  #: reconstructions instead of codes
    device: str = "auto"
    precision: Precision = "float32"
    threads: int | None = None
    checkpoint: str | None = None
    strict: bool = False  #: reject invalid UTF-8 instead of replacing it with U+FFFD
    what: What | None = None  #: pooling of a language model; None: the mean of the tokens
    layer: int | None = None  #: layer to read; 0: the embeddings; None: the last layer


@dataclass(frozen=True)
class EmbeddingBatch:
    """Output rows: vectors, or reconstructed lines."""

    numbers: npt.NDArray[Any] | None  #: (n, columns); None for reconstructed lines
    texts: list[str] | None = None  #: reconstructed lines
    inputs: list[str] | None = None  #: input of each row: a line, or a token of the vocabulary


@dataclass
class EmbedTotals:
    """Reconstruction totals."""

    unit: Literal["lines", "vectors"] = "lines"
    n_rows: int = 0
    n_blank: int = 0  #: blank lines
    n_exact: int = 0
    n_numbers: int = 0
    squares: float = 0.0
    mean_squares: float = 0.0  #: sum of squared errors of predicting the training mean

    def to_dict(self) -> dict[str, Any]:
        """Return the totals as plain data for ``--json``."""
        if self.unit == "lines":
            exact = 100 * self.n_exact / max(1, self.n_rows - self.n_blank)
            return {"lines": self.n_rows, "blank": self.n_blank, "exact": exact}
        error, baseline = (total / max(1, self.n_numbers) for total in (self.squares, self.mean_squares))
        shares = {"error": error, "mean_error": baseline, "explained": explained(error, baseline)}
        return {"vectors": self.n_rows, **shares}

    def __str__(self) -> str:
        found = self.to_dict()
        if self.unit == "lines":
            blank, rest = (f", {self.n_blank:,} blank", "the others") if self.n_blank else ("", "them")
            return f"{self.n_rows:,} lines{blank}, {found['exact']:.1f} % of {rest} reconstructed exactly"
        said = f"mean squared error {found['error']:.6g}, baseline {found['mean_error']:.6g}"
        return f"{self.n_rows:,} vectors, {said}, {found['explained']:.1%} of variance explained"


def embed_stream(request: Request, totals: EmbedTotals, tell: Callable[[str], None]) -> Iterator[EmbeddingBatch]:
    """Yield output rows in batches; add the results of reconstruction to ``totals``.

    The first batch is empty (except for static): it gives the number of columns even without input. Raises ``RunError``
    for a run of another task, ``UsageError`` for an option that the run does not support, ``DataError`` for invalid
    vector files, vectors of the wrong width, and vector files for a run that reads text.
    """
    set_threads(request.threads)
    if holds_language(RunFolder(request.run).checkpoint(request.checkpoint)[0]):
        if request.reconstruct:
            raise UsageError("a language model cannot reconstruct lines", where="--reconstruct", help="leave it out")
        precision = "float32" if request.what == "static" else request.precision  # the table is read as it is
        reader = open_reader(request.run, request.layer, request.device, request.checkpoint, precision, tell)
        for warning in reader.warnings:
            tell(warning)
        if request.what == "static":
            if request.layer is not None:
                raise UsageError("--layer cannot be combined with --what static", where="--layer", help="leave it out")
            yield EmbeddingBatch(reader.table, inputs=entry_names(reader.tokenizer))
            return
        yield EmbeddingBatch(np.empty((0, reader.width), np.float32))
        for window in _windows(request, tell):
            yield EmbeddingBatch(line_vectors(reader, window, request.what or "mean"), inputs=window)
        return
    opened = load_model(request.run, "autoencode", device=request.device, checkpoint=request.checkpoint, warn=tell)
    set_precision(opened, request.precision, tell)
    if request.what is not None or request.layer is not None:
        flag = "--what" if request.what is not None else "--layer"
        raise UsageError("auto-encoders do not support --what and --layer", where=flag, help="leave it out")
    if opened.config.model.kind == "mlp":
        yield from _of_vectors(opened, request, totals)
    else:
        yield from _of_lines(opened, request, totals, tell)


def _of_vectors(opened: LoadedModel, request: Request, totals: EmbedTotals) -> Iterator[EmbeddingBatch]:
    totals.unit = "vectors"
    width = opened.model.mean.numel()
    n_columns = width if request.reconstruct else opened.config.model.d_code
    yield EmbeddingBatch(np.empty((0, n_columns), np.float32))
    for path in request.files:
        for vectors in read_vectors(path, width):
            with torch.inference_mode():
                inputs = torch.from_numpy(vectors).to(opened.device)
                found = (opened.model(inputs) if request.reconstruct else opened.model.encode(inputs)).cpu().numpy()
            if request.reconstruct:
                mean = opened.model.mean.cpu().numpy()
                totals.n_rows += len(found)
                totals.n_numbers += vectors.size
                totals.squares += float(np.square(found.astype(np.float64) - vectors).sum())
                totals.mean_squares += float(np.square(mean.astype(np.float64) - vectors).sum())
            yield EmbeddingBatch(found)


def _of_lines(
    opened: LoadedModel, request: Request, totals: EmbedTotals, tell: Callable[[str], None]
) -> Iterator[EmbeddingBatch]:
    numbers = None if request.reconstruct else np.empty((0, opened.config.model.d_code), np.float32)
    yield EmbeddingBatch(numbers, [] if request.reconstruct else None)
    tokenizer = read_tokenizer(opened.checkpoint)
    for window in _windows(request, tell):
        rows = tokenizer.encode(window)
        if not request.reconstruct:
            yield EmbeddingBatch(encode_lines(opened.model, rows, opened.device), inputs=window)
            continue
        found = reconstruct(opened.model, rows, tokenizer, opened.device)
        texts = [text if line.strip() else "" for text, line in zip(found, window, strict=True)]
        # Blank lines stay blank and do not count as exact.
        same = [a == b for a, b, line in zip(texts, tokenizer.decode(rows), window, strict=True) if line.strip()]
        totals.n_rows += len(window)
        totals.n_blank += len(window) - len(same)
        totals.n_exact += sum(same)
        yield EmbeddingBatch(None, texts, window)


def _windows(request: Request, tell: Callable[[str], None]) -> Iterator[list[str]]:
    """Yield the lines of all files in batches; raise ``DataError`` for vector files."""
    for path in request.files:
        if path.name.endswith(VECTORS) and path.exists():
            help = "if it is text, change its suffix" if path.name.endswith(".csv") else None
            raise DataError("the input is a vector file, but this run reads text", where=str(path), help=help)
    for path in request.files:
        yield from read_line_batches(path, _WINDOW, request.strict, tell)


def write_table(path: Path, blocks: Iterator[EmbeddingBatch]) -> bool:
    """Write static vectors in the suffix's format; return False if it has none."""
    ending = path.suffix.lower()
    if ending == ".csv":
        raise UsageError(
            "cannot write .csv: tokens may contain commas", where="-o", help="choose .tsv or another suffix"
        )
    format = None if ending == ".tsv" else ENDINGS.get(ending)
    if format is None:
        return False
    (block,) = blocks
    assert block.numbers is not None and block.inputs is not None
    write_vectors(path, VectorTable(block.inputs, block.numbers), format)
    return True


def render(block: EmbeddingBatch, separator: str, as_json: bool, of: str = "text", named: bool = False) -> list[str]:
    """Return one line per row: reconstructed text, separated numbers, or JSON.

    JSON has the input of the row under the key ``of``. If ``named``, the input precedes the separated numbers.
    """
    # Nine significant digits distinguish all float32 values.
    rows = [] if block.numbers is None else [[format(n, ".9g") for n in row] for row in block.numbers.tolist()]
    if as_json:
        values: list[dict[str, Any]] = [{"reconstruction": text} for text in block.texts or ()]
        values += [{"numbers": [float(number) for number in row]} for row in rows]
        inputs: list[dict[str, Any]] = [{of: line} for line in block.inputs or ()] or [{} for _ in values]
        return [json.dumps({**row, **value}, ensure_ascii=False) for row, value in zip(inputs, values, strict=True)]
    if block.texts is not None:
        return block.texts
    names = [[name] for name in block.inputs or ()] if named else [[] for _ in rows]
    return [separator.join(name + row) for name, row in zip(names, rows, strict=True)]


def write_binary(path: Path, stream: BinaryIO, blocks: Iterable[EmbeddingBatch]) -> None:
    """Write all rows to a binary file; raise ``UsageError`` for text or a pipe."""
    if not stream.seekable():  # the header is rewritten at the end, with the number of rows
        what = f"a {path.suffix} file cannot be written to a pipe"
        raise UsageError(what, where="-o", help="name a file, or print text")

    def numbers() -> Iterator[npt.NDArray[Any]]:
        for block in blocks:
            if block.numbers is None:
                help = "choose another suffix for -o"
                raise UsageError(f"{path.suffix} cannot store text", where="--reconstruct", help=help)
            yield block.numbers

    BINARY[path.suffix.lower()](stream, numbers())
