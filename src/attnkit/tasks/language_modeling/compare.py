"""BERT and GPT on one text: what each sees at each place, and what it guesses there.

BERT is asked once for each token, which is hidden alone; GPT once for the whole text, in its direction. Letters:
T tokens of the text, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.checkpoint_metadata import read_tree
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError
from attnkit.models.packing import PackedLayout
from attnkit.plotting.lm_comparison import Candidate, Position
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.runtime.devices import set_threads
from attnkit.tasks.language_modeling.config import MASK
from attnkit.tasks.language_modeling.fill_mask import Predictor, refuse_longer
from attnkit.text.tokenizer import Tokenizer

_BATCH_TOKENS = 4096


@dataclass(frozen=True)
class CompareRequest:
    """What ``attnkit compare-lm`` is asked to do."""

    runs: tuple[Path, Path]
    """Of BERT and of GPT, in whichever order."""
    text: str
    top: int = 3
    """Guesses for each place."""
    device: str = "auto"
    threads: int | None = None
    checkpoint: str | None = None


@dataclass(frozen=True)
class PositionPrediction:
    """A text as one model guesses it."""

    run: str
    model: str
    """``BERT`` or ``GPT``."""
    sees: str
    """Which tokens it sees at each place, in words."""
    places: list[Position]

    @property
    def n_right(self) -> int:
        """Return how many tokens are the likeliest at their places."""
        return sum(place.rank == 1 for place in self.places)

    @property
    def perplexity(self) -> float:
        """Return 1 / the geometric mean of the tokens' probabilities; of BERT this is the pseudo-perplexity."""
        nll = -sum(math.log(max(place.probability, 1e-300)) for place in self.places)
        return math.exp(min(700.0, nll / len(self.places)))

    def as_dictionary(self) -> dict[str, Any]:
        """Return it as plain data for ``--json``."""
        return {**asdict(self), "right": self.n_right, "perplexity": self.perplexity}


def compare(request: CompareRequest, tell: Callable[[str], None]) -> tuple[PositionPrediction, PositionPrediction]:
    """Return the text as BERT guesses it, and as GPT does; ``tell`` takes warnings.

    Raises:
        RunError: the runs are not one of each.
        DataError: there is no text, it holds a mask, or it is longer than a model reads at once.
    """
    if not request.text.strip():
        raise DataError("there is no text to compare on", help='for example: "The cat sat on the mat."')
    if MASK in request.text:
        raise DataError(f"the text holds {MASK}: each of its tokens is hidden in turn", help="put a word there")
    set_threads(request.threads)
    first, second = request.runs
    if _task(first, request.checkpoint) == "clm" and _task(second, request.checkpoint) == "mlm":
        first, second = second, first
    found = [
        load_model(path, task, device=request.device, checkpoint=request.checkpoint)
        for path, task in ((first, "mlm"), (second, "clm"))
    ]
    for opened in found:
        for warning in opened.warnings:
            tell(warning)
    return _by_bert(found[0], request), _by_gpt(found[1], request)


def _task(run: Path, checkpoint: str | None) -> str:
    return str(read_tree(RunFolder(run).checkpoint(checkpoint)[0]).get("task"))


def _encode(tokenizer: Tokenizer, request: CompareRequest, opened: LoadedModel) -> list[int]:
    ids = tokenizer.encode([request.text])[0]
    if not ids:
        what = "the vocabulary leaves nothing of this text"
        raise DataError(what, where=str(opened.path), help="give one with letters in it")
    return ids


@torch.inference_mode()
def _by_bert(opened: LoadedModel, request: CompareRequest) -> PositionPrediction:
    tokenizer = read_tokenizer(opened.checkpoint)
    ids = _encode(tokenizer, request, opened)
    refuse_longer(len(ids) + 2, opened.config.model.max_text_length, str(opened.path))
    predictor = Predictor(opened.model, tokenizer, opened.device)
    rows = [[BOS_ID, *ids[:place], predictor.mask, *ids[place + 1 :], EOS_ID] for place in range(len(ids))]
    size = max(1, _BATCH_TOKENS // (len(ids) + 2))
    parts = [
        predictor.probabilities(
            rows[begin : begin + size], [[i + 1] for i in range(begin, min(begin + size, len(ids)))]
        )
        for begin in range(0, len(ids), size)
    ]
    places = _places(tokenizer, ids, torch.cat(parts), request.top, (True, True))
    return PositionPrediction(str(opened.path), "BERT", "all others", list(places))


@torch.inference_mode()
def _by_gpt(opened: LoadedModel, request: CompareRequest) -> PositionPrediction:
    tokenizer, backwards = read_tokenizer(opened.checkpoint), opened.config.direction == "right-to-left"
    ids = _encode(tokenizer, request, opened)
    refuse_longer(len(ids), opened.config.model.max_text_length, str(opened.path))  # the last one is only guessed
    read = [BOS_ID, *(reversed(ids) if backwards else ids)][:-1]
    hidden = opened.model.hidden(torch.tensor([read], device=opened.device), PackedLayout.unpacked(1))[0]
    probabilities = opened.model.head(hidden).double().softmax(-1)
    if backwards:
        probabilities = probabilities.flip(0)
    places = _places(tokenizer, ids, probabilities, request.top, (not backwards, backwards))
    return PositionPrediction(str(opened.path), "GPT", f"those {'after' if backwards else 'before'} it", list(places))


def _places(
    tokenizer: Tokenizer, ids: list[int], probabilities: Tensor, top: int, sides: tuple[bool, bool]
) -> Iterator[Position]:
    """Yield the places of a text from the probabilities (T, V) of a model that sees the sides before and after."""
    right = probabilities.gather(1, torch.tensor(ids, device=probabilities.device)[:, None])
    ranks = ((probabilities > right).sum(1) + 1).tolist()
    best = probabilities.topk(min(top, probabilities.shape[1]), sorted=True)
    pieces = tokenizer.tokens(ids)
    for i, (own, values) in enumerate(zip(best.indices.tolist(), best.values.tolist(), strict=True)):
        guesses = [Candidate(*pair) for pair in zip(tokenizer.tokens(own), values, strict=True)]
        space = " " if i and tokenizer.bytes_of(ids[i]).startswith(b" ") and tokenizer.config.kind != "char" else ""
        before = tokenizer.decode([ids[:i]])[0] + space if sides[0] else ""
        after = _raw(tokenizer, ids[i + 1 :]) if sides[1] else ""
        yield Position(before, after, pieces[i], float(right[i]), ranks[i], guesses)


def _raw(tokenizer: Tokenizer, ids: list[int]) -> str:
    return b"".join(map(tokenizer.bytes_of, ids)).decode("utf-8", errors="replace")
