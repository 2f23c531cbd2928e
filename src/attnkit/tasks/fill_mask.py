"""What stands where ``[MASK]`` does, by a trained BERT: the likeliest tokens with their probabilities.

Letters: B rows, T tokens of a row, N masks, K guesses, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnkit.errors import DataError
from attnkit.models.bert import Bert
from attnkit.models.passages import Layout
from attnkit.runtime.devices import set_threads
from attnkit.tasks.load import read_tokenizer
from attnkit.tasks.opened import Opened, open_run
from attnkit.tasks.pretrain_config import MASK
from attnkit.tasks.searching import Batching, make_batches
from attnkit.tasks.stream import complaints, patience_with, windows
from attnkit.text.hidden import encode_hidden, fill
from attnkit.text.joints import ordinary
from attnkit.text.lines import STDIN, LineReader
from attnkit.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer

_AT_ONCE, _BATCH_TOKENS = 256, 2048


@dataclass(frozen=True)
class Request:
    """What ``attnkit fill-mask`` is asked to do."""

    run: Path
    texts: list[str] | None = None
    """Without them, the lines of standard input."""
    top: int = 5
    """Guesses for each mask."""
    device: str = "auto"
    threads: int | None = None
    checkpoint: str | None = None
    strict: bool = False
    """Refuse bytes that are not UTF-8 instead of putting U+FFFD in their place."""


@dataclass(frozen=True)
class Guess:
    """A token in the place of a mask."""

    piece: str
    probability: float
    """Of this token among all that the vocabulary has; other masks of the line are still hidden."""
    text: str
    """The line with it; other masks stay."""


@dataclass(frozen=True)
class Filled:
    """A line with guesses."""

    text: str
    filled: str
    """The line with the likeliest token in the place of each mask."""
    masks: list[list[Guess]]
    """For each mask its guesses, the likeliest first. Tokens that stand for no text are left out."""

    def as_dictionary(self) -> dict[str, Any]:
        """Return it as plain data for ``--json``."""
        return asdict(self)


class Filler:
    """Lines in, guesses out. A result depends on its own line alone."""

    def __init__(self, opened: Opened, top: int = 5) -> None:
        """Take a run of BERT, and how many guesses are wanted for a mask.

        Raises:
            DataError: its vocabulary has no mask.
        """
        self.tokenizer, self.top = read_tokenizer(opened.checkpoint), top
        self.predictor = Predictor(opened.model, self.tokenizer, opened.device)
        self.longest: int = opened.config.model.longest_text
        self._places = torch.from_numpy(ordinary(self.tokenizer)).to(opened.device)

    def fill(self, lines: Sequence[str], first: int = 1, source: str = "texts") -> list[Filled]:
        """Return the guesses for lines, which are those from number ``first`` on of a source.

        Raises:
            DataError: a line has no mask, or more tokens than are read at once.
        """
        rows = [self._read(line, f"{source}, line {number}") for number, line in enumerate(lines, first)]
        found: list[Filled | None] = [None] * len(rows)
        for batch in make_batches([len(row) for row in rows], Batching(_BATCH_TOKENS, "tokens")):
            some = [rows[i] for i in batch]
            masks = [[place for place, id in enumerate(row) if id == self.predictor.mask] for row in some]
            sizes = [len(places) for places in masks]
            probabilities = torch.split(self.predictor.probabilities(some, masks), sizes)
            for i, part in zip(batch, probabilities, strict=True):
                found[i] = self._told(lines[i], part)
        return [filled for filled in found if filled is not None]

    def _read(self, line: str, where: str) -> list[int]:
        ids = encode_hidden(self.tokenizer, line, MASK)
        if self.predictor.mask not in ids:
            raise DataError(f"there is no {MASK} in this line", where=where, help=f"put {MASK} where a word is missing")
        row = [BOS_ID, *ids, EOS_ID]
        refuse_longer(len(row), self.longest, where)
        return row

    def _told(self, line: str, probabilities: Tensor) -> Filled:
        """Return the guesses for a line from the probabilities (N, V) at its masks."""
        usable = probabilities[:, self._places]
        best = usable.topk(min(self.top, len(self._places)), sorted=True)
        ids, values = self._places[best.indices].tolist(), best.values.tolist()
        n = len(ids)
        masks = []
        for number, (own, probabilities_of) in enumerate(zip(ids, values, strict=True)):
            pieces = self.tokenizer.pieces(own)
            alone = [[id if place == number else None for place in range(n)] for id in own]
            texts = [fill(self.tokenizer, line, MASK, some) for some in alone]
            masks.append([Guess(*parts) for parts in zip(pieces, probabilities_of, texts, strict=True)])
        return Filled(line, fill(self.tokenizer, line, MASK, [own[0] for own in ids]), masks)


class Predictor:
    """Probabilities of hidden tokens."""

    def __init__(self, model: Bert, tokenizer: Tokenizer, device: torch.device) -> None:
        """Take a model with its vocabulary. Raises ``DataError`` where that has no mask."""
        mask = tokenizer.symbol(MASK)
        if mask is None:
            raise DataError(f"the vocabulary of this run has no {MASK}", help="take a run of pretrain-mlm")
        self.model, self.mask, self.device = model, mask, device

    @torch.inference_mode()
    def probabilities(self, rows: Sequence[list[int]], places: Sequence[list[int]]) -> Tensor:
        """Return the probabilities (N, V) in float64 at places of rows, row after row."""
        length = max(map(len, rows))
        ids = torch.tensor([row + [PAD_ID] * (length - len(row)) for row in rows], device=self.device)
        real = torch.arange(length, device=self.device) < torch.tensor([[len(row)] for row in rows], device=self.device)
        at = [number * length + place for number, own in enumerate(places) for place in own]
        hidden = self.model.hidden(ids, Layout.padded(real)).flatten(0, 1)
        logits = self.model.head(hidden[torch.tensor(at, device=self.device)])
        return logits.double().softmax(-1)


def refuse_longer(n_tokens: int, longest: int, where: str) -> None:
    """Raise ``DataError`` for a row of more tokens, its ends included, than are read at once."""
    if n_tokens > longest:
        what = f"this text has {n_tokens:,} tokens with its ends, and the model reads {longest:,} at most"
        raise DataError(what, where=where, help="shorten it")


def fill_stream(request: Request, tell: Callable[[str], None]) -> Iterator[list[Filled]]:
    """Yield the lines with guesses in groups as they are ready, first an empty one; ``tell`` takes warnings.

    Raises:
        RunError: the run is none of BERT.
        DataError: see ``Filler.fill``.
    """
    set_threads(request.threads)
    opened = open_run(request.run, "mlm", device=request.device, checkpoint=request.checkpoint)
    for warning in opened.warnings:
        tell(warning)
    filler = Filler(opened, request.top)
    yield []
    if request.texts is not None:
        yield filler.fill(request.texts)
        return
    lines, n = LineReader(STDIN, on_bad="refuse" if request.strict else "replace"), 1
    for window in windows(lines, _AT_ONCE, patience_with(STDIN)):
        yield filler.fill(window, n, "standard input")
        n += len(window)
    for message in complaints(lines.counts, STDIN):
        tell(message)
