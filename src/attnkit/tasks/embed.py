"""Codes and reconstructions of an auto-encoder, for lines or vectors from files: a row out for each row in."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from attnkit.data.arrays import Vectors, read_vectors
from attnkit.errors import UsageError
from attnkit.runtime import set_threads
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

    n_rows: int = 0
    n_exact: int = 0
    n_numbers: int = 0
    squares: float = 0.0
    mean_squares: float = 0.0
    """Of the training data's mean in the place of each vector."""

    def add_texts(self, found: list[str], expected: list[str]) -> None:
        """Take in lines that came back."""
        self.n_rows += len(found)
        self.n_exact += sum(a == b for a, b in zip(found, expected, strict=True))

    def add_vectors(self, found: Numbers, expected: Numbers, mean: Numbers) -> None:
        """Take in vectors that came back."""
        self.n_rows += len(found)
        self.n_numbers += expected.size
        self.squares += float(np.square(found.astype(np.float64) - expected).sum())
        self.mean_squares += float(np.square(mean.astype(np.float64) - expected).sum())

    def __str__(self) -> str:
        if not self.n_numbers:
            return f"{self.n_rows:,} lines, {100 * self.n_exact / max(1, self.n_rows):.1f} % of them came back exactly"
        error, baseline = self.squares / self.n_numbers, self.mean_squares / self.n_numbers
        gone = f"{explained(error, baseline):.1%} explained"
        return f"{self.n_rows:,} vectors, mean squared error {error:.6g}, of the mean {baseline:.6g}, {gone}"


def embed_stream(request: Request, totals: Totals, tell: Callable[[str], None]) -> Iterator[Block]:
    """Yield the rows in groups as they are ready; ``tell`` takes warnings, ``totals`` counts what came back.

    Raises:
        RunError: the run is no auto-encoder's.
        DataError: vectors of another width than the model's, or files that are none.
    """
    set_threads(request.threads)
    opened = open_run(request.run, "autoencode", device=request.device, checkpoint=request.checkpoint)
    for warning in opened.warnings:
        tell(warning)
    for path in request.files:
        if opened.config.model.kind == "mlp":
            width = opened.model.mean.numel()
            for vectors in read_vectors(path, width):
                yield _vectors(opened, vectors, request.reconstruct, totals)
        else:
            yield from _lines(opened, path, request, totals, tell)


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
            totals.add_texts(texts, _blank_stays(tokenizer.decode(rows), window))
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


def npy_bytes(blocks: Iterable[Block]) -> bytes:
    """Return the content of a ``.npy`` file of all rows. Raises ``UsageError`` where they are text."""
    found = []
    for block in blocks:
        if block.numbers is None:
            raise UsageError("lines are no numbers", where="--reconstruct", help="give another name than .npy to -o")
        found.append(block.numbers)
    stream = io.BytesIO()
    rows = np.concatenate(found) if found else np.empty((0, 0), np.float32)
    np.lib.format.write_array(stream, rows.astype("<f4"), allow_pickle=False)
    return stream.getvalue()
