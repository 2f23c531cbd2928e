"""Mask filling: the most probable tokens for ``[MASK]`` by a trained BERT.

Letters: B rows, T tokens of a row, N masks, K guesses, V vocabulary.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from attnkit.data.loader import Batching, make_batches
from attnkit.engine.loading import LoadedModel
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, RunError
from attnkit.metrics.labels import rounded
from attnkit.models.layers import PackedLayout
from attnkit.protocols import BOS_ID, EOS_ID, PAD_ID
from attnkit.tasks.language_modeling.config import MASK
from attnkit.tasks.language_modeling.electra import masked_language_model
from attnkit.text.files import STDIN
from attnkit.text.lines import read_line_batches
from attnkit.text.masked_lines import encode_masked, fill_masks
from attnkit.text.offsets import ordinary_tokens
from attnkit.text.tokenizer import Tokenizer

_READ_AHEAD, _BATCH_TOKENS = 256, 2048
_MAX_GUESSES = 100_000  #: predictions in memory at a time; each holds a copy of its line


@dataclass(frozen=True)
class Guess:
    """A predicted token for a mask."""

    piece: str
    probability: float  #: over the whole vocabulary, with all other masks of the line unfilled
    text: str  #: the line with this mask filled


@dataclass(frozen=True)
class FilledText:
    """A line with the predictions for its masks."""

    text: str
    filled: str  #: the line with the most probable token for each mask
    masks: list[list[Guess]]  #: predictions per mask, the most probable first, without special tokens

    def to_dict(self) -> dict[str, Any]:
        """Return the predictions as plain data for ``--json``."""
        masks = [[{**asdict(each), "probability": rounded(each.probability)} for each in mask] for mask in self.masks]
        return {"text": self.text, "filled": self.filled, "masks": masks}


class FillMaskPipeline:
    """Pipeline that fills masks; each result depends only on its own line."""

    def __init__(self, opened: LoadedModel, top: int = 5) -> None:
        """Take a BERT run and the number of predictions per mask.

        Of an ELECTRA, the generator predicts.

        Raises:
            DataError: the vocabulary has no mask token.
            RunError: the vocabulary has only special tokens.
        """
        self.opened, self.top = masked_language_model(opened), top
        self.tokenizer = read_tokenizer(opened.checkpoint)
        self.mask = find_mask_token(self.tokenizer)
        self.max_length: int = opened.config.model.max_text_length
        self._ordinary = torch.from_numpy(ordinary_tokens(self.tokenizer)).to(opened.device)
        if not len(self._ordinary):  # an imported tokenizer.json may have lost all ordinary entries
            what = "the vocabulary has only special tokens"
            raise RunError(what, where=str(opened.path), help="import the run again from a complete tokenizer.json")

    def fill(self, lines: Sequence[str], first: int = 1, source: str = "texts") -> list[FilledText]:
        """Fill the masks of lines; errors cite ``source`` and lines, from ``first``.

        Raises:
            DataError: a line has no mask or too many tokens.
        """
        rows, refused = self.encode(lines, first, source)
        if refused is not None:
            raise refused
        if maskless := [number for number, row in enumerate(rows, first) if not row]:
            where, help = f"{source}, line {maskless[0]}", f"put {MASK} where a word is missing"
            raise DataError(f"no {MASK} in this line", where=where, help=help)
        return self.predict(lines, rows)

    def fill_stdin(self, strict: bool, warn: Callable[[str], None]) -> Iterator[list[FilledText]]:
        """Fill the lines of standard input in batches; keep lines without a mask.

        Args:
            strict: reject invalid UTF-8 instead of replacing it by U+FFFD.
            warn: receives warnings.

        Raises:
            DataError: a line has too many tokens; the preceding lines are yielded first.
        """
        n = n_maskless = 0
        for window in read_line_batches(STDIN, max(1, min(_READ_AHEAD, _MAX_GUESSES // self.top)), strict, warn):
            rows, refused = self.encode(window, n + 1, "standard input")
            n, n_maskless = n + len(window), n_maskless + sum(not row for row in rows)
            yield self.predict(window[: len(rows)], rows)
            if refused is not None:
                raise refused
        if n_maskless:
            warn(f"{n_maskless:,} of {n:,} lines have no {MASK}; they are copied unchanged")

    def encode(self, lines: Sequence[str], first: int, source: str) -> tuple[list[list[int]], DataError | None]:
        """Return rows (empty without masks) up to the first overlong line, and its error."""
        rows: list[list[int]] = []
        for number, line in enumerate(lines, first):
            ids = encode_masked(self.tokenizer, line, MASK)
            row = [BOS_ID, *ids, EOS_ID] if self.mask in ids else []
            try:
                check_length(len(row), self.max_length, f"{source}, line {number}")
            except DataError as error:
                return rows, error
            rows.append(row)
        return rows, None

    def predict(self, lines: Sequence[str], rows: Sequence[list[int]]) -> list[FilledText]:
        """Fill the masks of lines, given their rows from ``encode``."""
        filled = [FilledText(line, line, []) for line in lines]
        kept = [i for i, row in enumerate(rows) if row]
        for batch in make_batches([len(rows[i]) for i in kept], Batching(_BATCH_TOKENS, "tokens")):
            indices = [kept[i] for i in batch]
            batch_rows = [rows[i] for i in indices]
            masks = [[place for place, id in enumerate(row) if id == self.mask] for row in batch_rows]
            probabilities = torch.split(predict_masks(self.opened, batch_rows, masks), list(map(len, masks)))
            for i, part in zip(indices, probabilities, strict=True):
                filled[i] = self._filled_text(lines[i], part)
        return filled

    def _filled_text(self, line: str, probabilities: Tensor) -> FilledText:
        """Return the predictions for a line from the probabilities (N, V) at its masks."""
        best = probabilities[:, self._ordinary].topk(min(self.top, len(self._ordinary)), sorted=True)  # (N, K)
        ids = self._ordinary[best.indices].tolist()
        masks = []
        for number, (candidates, values) in enumerate(zip(ids, best.values.tolist(), strict=True)):
            pieces = self.tokenizer.tokens(candidates)
            filled = [
                [id if mask == number else None for mask in range(len(ids))] for id in candidates
            ]  # this mask only
            texts = [fill_masks(self.tokenizer, line, MASK, tokens) for tokens in filled]
            masks.append([Guess(*parts) for parts in zip(pieces, values, texts, strict=True)])
        return FilledText(line, fill_masks(self.tokenizer, line, MASK, [own[0] for own in ids]), masks)


def find_mask_token(tokenizer: Tokenizer) -> int:
    """Return the id of the mask token. Raises ``DataError`` if there is none."""
    mask = tokenizer.token_id(MASK)
    if mask is None:
        raise DataError(f"the vocabulary of this run has no {MASK}", help="use a run of attnkit pretrain-mlm")
    return mask


@torch.inference_mode()
def predict_masks(opened: LoadedModel, rows: Sequence[list[int]], masks: Sequence[list[int]]) -> Tensor:
    """Return float64 probabilities (N, V) at the masks of rows, row by row."""
    length, device = max(map(len, rows)), opened.device
    ids = torch.tensor([row + [PAD_ID] * (length - len(row)) for row in rows], device=device)
    real = torch.arange(length, device=device) < torch.tensor([[len(row)] for row in rows], device=device)
    at = [number * length + position for number, own in enumerate(masks) for position in own]
    positions = torch.tensor(at, dtype=torch.int64, device=device)
    # (N, D): the last layer computes only the masks
    logits: Tensor = opened.model.head(opened.model.hidden(ids, PackedLayout.padded(real), positions=positions))
    return logits.double().softmax(-1)


def check_length(n_tokens: int, longest: int, where: str) -> None:
    """Check the length of a row with special tokens; raise ``DataError`` if too long."""
    if n_tokens > longest:
        what = f"the text has {n_tokens:,} tokens including special tokens, more than the maximum of {longest:,}"
        raise DataError(what, where=where, help="shorten it")
