"""Codes and reconstructions of an auto-encoder, for lines or vectors from files: a row out for each row in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
import torch

from attnkit.data.arrays import Vectors, read_vectors
from attnkit.errors import DataError, UsageError
from attnkit.interop.npy import write_npy
from attnkit.runtime.devices import set_threads
from attnkit.tasks.autoencode_config import VECTORS
from attnkit.tasks.autoencode_lines import encode_lines, reconstruct
from attnkit.tasks.autoencode_vectors import explained
from attnkit.tasks.load import read_tokenizer
from attnkit.tasks.opened import Opened, open_run
from attnkit.tasks.stream import complaints, patience_with, windows
from attnkit.text.lines import LineReader

_WINDOW = 4096
Numbers = npt.NDArray[Any]


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


@dataclass(frozen=True)
class Block:
    """Some rows: the codes, or what came back."""

    numbers: Numbers | None
    """(n, columns): codes, or vectors that came back; None where text did."""
    texts: list[str] | None = None
    """Lines that came back."""
    inputs: list[str] | None = None
    """The lines that went in."""


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
        """Take in what came back of lines; what a blank one gives is no success."""
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


def embed_stream(request: Request, totals: Totals, tell: Callable[[str], None]) -> Iterator[Block]:
    """Yield the rows in groups as they are ready; ``tell`` takes warnings, ``totals`` counts what came back.

    Raises:
        RunError: the run is no auto-encoder's.
        DataError: vectors of another width than the model's, or files that are none; vectors for a run of lines.
    """
    set_threads(request.threads)
    opened = open_run(request.run, "autoencode", device=request.device, checkpoint=request.checkpoint)
    for warning in opened.warnings:
        tell(warning)
    totals.unit = "vectors" if opened.config.model.kind == "mlp" else "lines"
    for path in request.files:
        if totals.unit == "lines" and path.name.endswith(VECTORS) and path.exists():
            help = "if it is text, give it another ending" if path.name.endswith(".csv") else None
            raise DataError("this is a file of vectors, and the run reads lines", where=str(path), help=help)
    yield _nothing(opened, request.reconstruct)
    for path in request.files:
        if totals.unit == "vectors":
            width = opened.model.mean.numel()
            for vectors in read_vectors(path, width):
                yield _vectors(opened, vectors, request.reconstruct, totals)
        else:
            yield from _lines(opened, path, request, totals, tell)


def _nothing(opened: Opened, back: bool) -> Block:
    """Return a block without rows, for where none follows."""
    if opened.config.model.kind != "mlp" and back:
        return Block(None, [], [])
    width = opened.model.mean.numel() if back else opened.config.model.d_code
    return Block(np.empty((0, width), np.float32))


def _vectors(opened: Opened, vectors: Vectors, back: bool, totals: Totals) -> Block:
    with torch.inference_mode():
        given = torch.from_numpy(vectors).to(opened.device)
        found = (opened.model(given) if back else opened.model.encode(given)).cpu().numpy()
    if back:
        totals.add_vectors(found, vectors, opened.model.mean.cpu().numpy())
    return Block(found)


def _lines(
    opened: Opened, path: Path, request: Request, totals: Totals, tell: Callable[[str], None]
) -> Iterator[Block]:
    tokenizer = read_tokenizer(opened.checkpoint)
    lines = LineReader(path, on_bad="refuse" if request.strict else "replace")
    for window in windows(lines, _WINDOW, patience_with(path)):
        rows = tokenizer.encode(window)
        if request.reconstruct:
            found = reconstruct(opened.model, rows, tokenizer, opened.device)
            texts = _blank_stays(found, window)
            totals.add_texts(texts, tokenizer.decode(rows), window)
            yield Block(None, texts, window)
        else:
            yield Block(encode_lines(opened.model, rows, opened.device), inputs=window)
    for message in complaints(lines.counts, path):
        tell(message)


def _blank_stays(texts: list[str], lines: list[str]) -> list[str]:
    return [text if line.strip() else "" for text, line in zip(texts, lines, strict=True)]


def render(block: Block, separator: str, as_json: bool) -> list[str]:
    """Return a line of text for each row: its numbers with a separator between them, its text, or JSON."""
    inputs: list[dict[str, Any]] = [{"text": line} for line in block.inputs or ()]
    if block.texts is not None:
        if not as_json:
            return block.texts
        pairs = zip(inputs, block.texts, strict=True)
        return [json.dumps({**given, "reconstruction": text}, ensure_ascii=False) for given, text in pairs]
    assert block.numbers is not None
    # Nine digits tell any two 32-bit numbers apart.
    rows = [[format(number, ".9g") for number in row] for row in block.numbers.tolist()]
    if not as_json:
        return [separator.join(row) for row in rows]
    inputs = inputs or [{} for _ in rows]
    return [
        json.dumps({**given, "numbers": [float(number) for number in row]}, ensure_ascii=False)
        for given, row in zip(inputs, rows, strict=True)
    ]


def write_codes(stream: BinaryIO, blocks: Iterable[Block]) -> None:
    """Write all rows as a ``.npy`` file, block by block.

    Raises:
        UsageError: they are text, or the stream is a pipe: the number of rows stands at the beginning.
    """
    if not stream.seekable():
        raise UsageError("a .npy file cannot be written into a pipe", where="-o", help="name a file, or print text")
    write_npy(stream, map(_numbers, blocks))


def _numbers(block: Block) -> Numbers:
    if block.numbers is None:
        raise UsageError("lines are no numbers", where="--reconstruct", help="give another name than .npy to -o")
    return block.numbers
