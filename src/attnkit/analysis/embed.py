"""A row out for each row in: codes and reconstructions of an auto-encoder for lines or vectors, vectors of lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from attnkit.analysis.embed_output import EmbeddingBatch, Numbers, empty
from attnkit.analysis.embed_transformer import What, line_vectors, open_reader, static_rows
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.arrays import Vectors, read_vectors
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.formats.word_vectors.formats import ENDINGS
from attnkit.formats.word_vectors.table import VectorTable
from attnkit.runtime.devices import set_threads
from attnkit.tasks.autoencoding.config import VECTORS
from attnkit.tasks.autoencoding.lines import encode_lines, reconstruct
from attnkit.tasks.autoencoding.vectors import explained
from attnkit.tasks.language_modeling.loading import holds_language
from attnkit.tasks.word2vec.vector_files import write_vectors
from attnkit.text.line_stream import encoding_warnings, flush_interval, line_batches
from attnkit.text.lines import LineReader

_WINDOW = 4096


@dataclass(frozen=True)
class Request:
    """What ``attnkit embed`` is asked to do."""

    run: Path
    files: list[Path]
    """Files of lines or of vectors, as the model is one of these; ``-`` for standard input."""
    reconstruct: bool = False
    """Give what comes back instead of the codes."""
    device: str = "auto"
    threads: int | None = None
    checkpoint: str | None = None
    strict: bool = False
    """Refuse bytes that are not UTF-8 instead of putting U+FFFD in their place."""
    what: What | None = None
    """Of a language model: which vectors; the mean of a line's tokens if nobody says it."""
    layer: int | None = None
    """After how many layers, 0 being the embeddings; the last if nobody says it."""


@dataclass
class Totals:
    """How much came back."""

    unit: Literal["lines", "vectors"] = "lines"
    n_rows: int = 0
    n_blank: int = 0
    """Lines with nothing to bring back."""
    n_exact: int = 0
    n_numbers: int = 0
    squares: float = 0.0
    mean_squares: float = 0.0
    """Of the training data's mean in the place of each vector."""

    def add_texts(self, found: list[str], expected: list[str], lines: list[str]) -> None:
        """Take in what came back of lines; blank lines do not count as correct."""
        there = [bool(line.strip()) for line in lines]
        self.n_rows += len(lines)
        self.n_blank += len(lines) - sum(there)
        self.n_exact += sum(a == b for a, b, counts in zip(found, expected, there, strict=True) if counts)

    def add_vectors(self, found: Numbers, expected: Numbers, mean: Numbers) -> None:
        """Take in vectors that came back."""
        self.n_rows += len(found)
        self.n_numbers += expected.size
        self.squares += float(np.square(found.astype(np.float64) - expected).sum())
        self.mean_squares += float(np.square(mean.astype(np.float64) - expected).sum())

    def as_dictionary(self) -> dict[str, Any]:
        """Return the totals as plain data for ``--json``."""
        if self.unit == "lines":
            exact = 100 * self.n_exact / max(1, self.n_rows - self.n_blank)
            return {"lines": self.n_rows, "blank": self.n_blank, "exact": exact}
        error, baseline = (total / max(1, self.n_numbers) for total in (self.squares, self.mean_squares))
        shares = {"error": error, "mean_error": baseline, "explained": explained(error, baseline)}
        return {"vectors": self.n_rows, **shares}

    def __str__(self) -> str:
        found = self.as_dictionary()
        if self.unit == "lines":
            blank, rest = (f", {self.n_blank:,} blank", "the others") if self.n_blank else ("", "them")
            return f"{self.n_rows:,} lines{blank}, {found['exact']:.1f} % of {rest} came back exactly"
        said = f"mean squared error {found['error']:.6g}, of the mean {found['mean_error']:.6g}"
        return f"{self.n_rows:,} vectors, {said}, {found['explained']:.1%} explained"


def embed_stream(request: Request, totals: Totals, tell: Callable[[str], None]) -> Iterator[EmbeddingBatch]:
    """Yield the rows in groups as they are ready; ``tell`` takes warnings, ``totals`` counts what came back.

    Raises:
        RunError: the run is neither an auto-encoder's nor a language model's.
        UsageError: the run cannot do what is asked of it.
        DataError: vectors of another width than the model's, or files that are none; vectors for a run of lines.
    """
    set_threads(request.threads)
    if holds_language(RunFolder(request.run).checkpoint(request.checkpoint)[0]):
        yield from _of_language(request, tell)
        return
    opened = load_model(request.run, "autoencode", device=request.device, checkpoint=request.checkpoint)
    if request.what is not None or request.layer is not None:
        flag = "--what" if request.what is not None else "--layer"
        raise UsageError("an auto-encoder has its codes and nothing else", where=flag, help="leave it out")
    for warning in opened.warnings:
        tell(warning)
    totals.unit = "vectors" if opened.config.model.kind == "mlp" else "lines"
    if totals.unit == "lines":
        _refuse_vectors(request.files)
    yield _nothing(opened, request.reconstruct)
    for path in request.files:
        if totals.unit == "vectors":
            width = opened.model.mean.numel()
            for vectors in read_vectors(path, width):
                yield _vectors(opened, vectors, request.reconstruct, totals)
        else:
            yield from _lines(opened, path, request, totals, tell)


def _refuse_vectors(paths: list[Path]) -> None:
    for path in paths:
        if path.name.endswith(VECTORS) and path.exists():
            help = "if it is text, give it another ending" if path.name.endswith(".csv") else None
            raise DataError("this is a file of vectors, and the run reads lines", where=str(path), help=help)


def _of_language(request: Request, tell: Callable[[str], None]) -> Iterator[EmbeddingBatch]:
    if request.reconstruct:
        raise UsageError("a language model brings nothing back", where="--reconstruct", help="leave it out")
    reader = open_reader(request.run, request.layer, request.device, request.checkpoint)
    for warning in reader.warnings:
        tell(warning)
    if request.what == "static":
        yield from static_rows(reader, request.layer)
        return
    _refuse_vectors(request.files)
    what = request.what or "mean"
    yield empty(reader.width)
    for path in request.files:
        lines = LineReader(path, on_bad="refuse" if request.strict else "replace")
        for window in line_batches(lines, _WINDOW, flush_interval(path)):
            yield EmbeddingBatch(line_vectors(reader, window, what), inputs=window)
        for message in encoding_warnings(lines.counts, path):
            tell(message)


def write_table(path: Path, blocks: Iterator[EmbeddingBatch]) -> bool:
    """Write a vocabulary's vectors in the format of word vectors that a file's ending names; False if it names none.

    Raises:
        UsageError: ``.csv``, in which pieces that are commas would be lost.
    """
    ending = path.suffix.lower()
    if ending == ".csv":
        raise UsageError("pieces may be commas, which .csv cannot keep", where="-o", help="choose .tsv or another name")
    format = None if ending == ".tsv" else ENDINGS.get(ending)
    if format is None:
        return False
    (block,) = blocks
    assert block.numbers is not None and block.inputs is not None
    write_vectors(path, VectorTable(block.inputs, block.numbers), format)
    return True


def _nothing(opened: LoadedModel, back: bool) -> EmbeddingBatch:
    if opened.config.model.kind != "mlp" and back:
        return EmbeddingBatch(None, [], [])
    return empty(opened.model.mean.numel() if back else opened.config.model.d_code)


def _vectors(opened: LoadedModel, vectors: Vectors, back: bool, totals: Totals) -> EmbeddingBatch:
    with torch.inference_mode():
        given = torch.from_numpy(vectors).to(opened.device)
        found = (opened.model(given) if back else opened.model.encode(given)).cpu().numpy()
    if back:
        totals.add_vectors(found, vectors, opened.model.mean.cpu().numpy())
    return EmbeddingBatch(found)


def _lines(
    opened: LoadedModel, path: Path, request: Request, totals: Totals, tell: Callable[[str], None]
) -> Iterator[EmbeddingBatch]:
    tokenizer = read_tokenizer(opened.checkpoint)
    lines = LineReader(path, on_bad="refuse" if request.strict else "replace")
    for window in line_batches(lines, _WINDOW, flush_interval(path)):
        rows = tokenizer.encode(window)
        if request.reconstruct:
            found = reconstruct(opened.model, rows, tokenizer, opened.device)
            texts = _blank_stays(found, window)
            totals.add_texts(texts, tokenizer.decode(rows), window)
            yield EmbeddingBatch(None, texts, window)
        else:
            yield EmbeddingBatch(encode_lines(opened.model, rows, opened.device), inputs=window)
    for message in encoding_warnings(lines.counts, path):
        tell(message)


def _blank_stays(texts: list[str], lines: list[str]) -> list[str]:
    return [text if line.strip() else "" for text, line in zip(texts, lines, strict=True)]
