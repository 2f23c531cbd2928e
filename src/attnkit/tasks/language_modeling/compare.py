"""Context and predictions of BERT and GPT at each position of a text.

BERT takes one pass per word with all tokens of the word masked, so that no part of a word reveals the rest; GPT takes
one pass over the text in its direction. Letters: T tokens of the text, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_tree
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError
from attnkit.models.layers import PackedLayout
from attnkit.plotting.lm_comparison import Candidate, TokenComparison
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.language_modeling.config import MASK
from attnkit.tasks.language_modeling.electra import masked_language_model
from attnkit.tasks.language_modeling.fill_mask import check_length, find_mask_token, predict_masks
from attnkit.text.offsets import word_boundaries
from attnkit.text.tokenizer import Tokenizer

_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class PositionPrediction:
    """Predictions of one model at each position of a text."""

    run: str
    model: str  #: ``BERT`` or ``GPT``
    sees: str  #: description of the context of each position
    places: list[TokenComparison]

    @property
    def n_correct(self) -> int:
        """Return the number of tokens ranked first at their positions."""
        return sum(place.rank == 1 for place in self.places)

    @property
    def perplexity(self) -> float:
        """Return the perplexity of the text, or the pseudo-perplexity for BERT."""
        nll = -sum(math.log(max(place.probability, 1e-300)) for place in self.places)
        return math.exp(min(700.0, nll / len(self.places)))

    def to_dict(self) -> dict[str, Any]:
        """Return the predictions as plain data for ``--json``."""
        return {**asdict(self), "right": self.n_correct, "perplexity": self.perplexity}


def compare(
    runs: tuple[Path, Path],
    text: str,
    top: int = 3,
    *,
    device: str = "auto",
    checkpoint: str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> tuple[PositionPrediction, PositionPrediction]:
    """Return the predictions of BERT and GPT for a text.

    Args:
        runs: a BERT and a GPT run, in any order.
        text: a sentence.
        top: predictions per position.
        device: ``auto`` or a torch device.
        checkpoint: name of a checkpoint of both runs; the best one by default.
        warn: receives warnings.

    Raises:
        RunError: the runs are not one BERT and one GPT run.
        DataError: the text is blank, contains a mask, or exceeds the maximum length of a model.
    """
    if not text.strip():
        raise DataError("no text given", help='for example: "The cat sat on the mat."')
    if MASK in text:
        raise DataError(f"the text contains {MASK}; each token is masked in turn", help=f"replace {MASK} by a word")
    if [read_tree(RunFolder(run).checkpoint(checkpoint)[0]).get("task") for run in runs] == ["clm", "mlm"]:
        runs = runs[::-1]
    bert, gpt = (
        load_model(run, task, device=device, checkpoint=checkpoint, warn=warn)
        for run, task in zip(runs, ("mlm", "clm"), strict=True)
    )
    return _predict_bert(masked_language_model(bert), text, top), _predict_gpt(gpt, text, top)


def _encode(opened: LoadedModel, text: str, n_ends: int) -> tuple[Tokenizer, list[int]]:
    """Return a run's tokenizer and the ids of a text, checking its length."""
    tokenizer = read_tokenizer(opened.checkpoint)
    ids = tokenizer.encode([text])[0]
    if not ids:
        what = "the text has no tokens in this vocabulary"
        raise DataError(what, where=str(opened.path), help="give a text with letters")
    check_length(len(ids) + n_ends, opened.config.model.max_text_length, str(opened.path))
    return tokenizer, ids


def _predict_bert(opened: LoadedModel, text: str, top: int) -> PositionPrediction:
    tokenizer, ids = _encode(opened, text, n_ends=2)
    mask = find_mask_token(tokenizer)
    starts = np.flatnonzero(word_boundaries(tokenizer).word_starts(np.array([ids]))[0]).tolist()
    words = list(zip(starts, [*starts[1:], len(ids)], strict=True))  # (first token, end) of each word
    rows = [[BOS_ID, *ids[:a], *[mask] * (b - a), *ids[b:], EOS_ID] for a, b in words]
    masks = [list(range(a + 1, b + 1)) for a, b in words]  # shifted by the begin symbol
    size = max(1, _BATCH_TOKENS // (len(ids) + 2))
    batches = [slice(first, first + size) for first in range(0, len(words), size)]
    probabilities = torch.cat([predict_masks(opened, rows[batch], masks[batch]) for batch in batches])  # (T, V)
    seen = [(ids[:a], ids[b:]) for a, b in words for _ in range(a, b)]
    positions = list(_positions(tokenizer, ids, probabilities, top, seen))
    return PositionPrediction(str(opened.path), "BERT", "all other words", positions)


@torch.inference_mode()
def _predict_gpt(opened: LoadedModel, text: str, top: int) -> PositionPrediction:
    tokenizer, ids = _encode(opened, text, n_ends=0)  # the last token is only predicted
    backwards = opened.config.direction == "right-to-left"
    read = [BOS_ID, *(reversed(ids) if backwards else ids)][:-1]
    hidden = opened.model.hidden(torch.tensor([read], device=opened.device), PackedLayout.unpacked(1))[0]
    probabilities = opened.model.head(hidden).double().softmax(-1)  # (T, V)
    if backwards:
        probabilities = probabilities.flip(0)
    seen = [([], ids[i + 1 :]) if backwards else (ids[:i], []) for i in range(len(ids))]
    positions = list(_positions(tokenizer, ids, probabilities, top, seen))
    return PositionPrediction(str(opened.path), "GPT", f"those {'after' if backwards else 'before'} it", positions)


def _positions(
    tokenizer: Tokenizer, ids: list[int], probabilities: Tensor, top: int, seen: list[tuple[list[int], list[int]]]
) -> Iterator[TokenComparison]:
    """Yield positions from probabilities (T, V) and visible ids before and after."""
    right = probabilities.gather(1, torch.tensor(ids, device=probabilities.device)[:, None])
    ranks = ((probabilities > right).sum(1) + 1).tolist()
    best = probabilities.topk(min(top, probabilities.shape[1]), sorted=True)
    pieces = tokenizer.tokens(ids)
    for i, (own, values) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True)):
        guesses = [Candidate(*pair) for pair in zip(tokenizer.tokens(own), values, strict=True)]
        left, right_ids = seen[i]
        masked = ids[len(left)] if left else None  # first token of the word; may include a leading space
        spaced = masked is not None and tokenizer.bytes_of(masked).startswith(b" ")
        space = " " if spaced and tokenizer.config.kind != "char" else ""
        before = tokenizer.decode([left])[0] + space if left else ""
        after = b"".join(map(tokenizer.bytes_of, right_ids)).decode("utf-8", errors="replace")
        yield TokenComparison(before, after, pieces[i], float(right[i]), ranks[i], guesses)
