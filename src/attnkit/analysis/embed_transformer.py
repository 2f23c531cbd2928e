"""Vectors of a language model: of lines, of the tokens of a text, of a word.

A text longer than the rows that the model was trained on is read in windows that overlap; each of its tokens has the
feature of the window that shows the most context of it. Only windows of one length are read together, without
padding: what is read beside a line does not change its vector. Letters: B windows, T tokens of a row, D model width.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.windows import InMemoryTokens, Longs, cut_windows
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.loading import load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.language_modeling.config import LANGUAGE_TASKS
from attnkit.text.offsets import align
from attnkit.text.tokenizer import Tokenizer

What = Literal["mean", "cls", "static"]
Floats = npt.NDArray[np.float32]
_TOKENS = 4096  #: tokens of a batch
_LONGEST = 512  #: tokens of a row where neither positions nor training data limit it


@dataclass(frozen=True)
class Reader:
    """A language model that reads texts of any length."""

    model: Bert | Gpt
    tokenizer: Tokenizer
    layer: int  #: index of the layer that is read; 0: the embeddings
    max_tokens: int  #: tokens of a text per row, without special tokens
    backwards: bool  #: whether the model reads right to left
    device: torch.device
    warnings: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Numbers of a vector."""
        return self.model.embedding.embedding_dim

    @property
    def table(self) -> Floats:
        """The static vectors (V, D) of the vocabulary's entries."""
        found: Floats = self.model.embedding.weight.detach().cpu().numpy()
        return found


@dataclass(frozen=True)
class LayerStates:
    """Windows of one length, and what the model made of them."""

    texts: Longs  #: (B,) the number of the text that each is of
    first: Floats  #: (B, D) the feature of the symbol at the beginning
    tokens: Floats  #: (B, T, D) those of the tokens, in the order of the text
    places: Longs  #: (B, T) the place of each token in its text
    best: npt.NDArray[np.bool_]  #: (B, T) whether no other window shows more context of the token


def open_reader(path: Path, layer: int | None = None, device: str = "auto", checkpoint: str | None = None) -> Reader:
    """Open a run of BERT, of GPT, or of what was made of them.

    Raises ``RunError`` for a run or checkpoint that is missing, damaged or of another kind, ``UsageError`` for a layer
    that the model does not have.
    """
    chosen, warnings = RunFolder(path).checkpoint(checkpoint)
    config: Any = read_run_config(chosen, *LANGUAGE_TASKS)
    n_layers = config.model.n_layers
    if layer is not None and not 0 <= layer <= n_layers:
        help = f"choose 0 (embeddings) to {n_layers} (last layer)"
        raise UsageError(f"this model has no layer {layer}", where="--layer", help=help)
    opened = load_model(path, config.task, device=device, checkpoint=chosen.name)
    model = opened.model if isinstance(opened.model, Bert | Gpt) else opened.model.encoder
    learned_from = getattr(config.data, "sequence_length", None), getattr(config, "max_row_length", None)
    limits = [limit for limit in (config.model.max_positions, *learned_from) if limit is not None]
    longest = min(limits, default=_LONGEST)
    return Reader(
        model=cast("Bert | Gpt", model),
        tokenizer=read_tokenizer(chosen),
        layer=n_layers if layer is None else layer,
        max_tokens=longest - (2 if isinstance(model, Bert) else 1),
        backwards=getattr(config, "direction", "") == "right-to-left",
        device=opened.device,
        warnings=tuple(warnings),
    )


def line_vectors(reader: Reader, lines: Sequence[str], what: Literal["mean", "cls"]) -> Floats:
    """Return a vector (n, D) of each line: the mean of its tokens, or for ``cls`` its first token's.

    A line without tokens has the mean 0. Of a line in several windows ``cls`` is the mean of theirs. Raises
    ``UsageError`` for ``cls`` of GPT.
    """
    if what == "cls" and isinstance(reader.model, Gpt):
        help = "use --what mean"
        raise UsageError("GPT's first token attends to itself only", where="--what cls", help=help)
    rows = reader.tokenizer.encode(lines)
    totals, counts = np.zeros((len(rows), reader.width)), np.zeros((len(rows), 1))
    for read in read_texts(reader, rows):
        if what == "cls":
            found, weights = read.first, np.ones(len(read.texts))
        else:
            found = np.where(read.best[:, :, None], read.tokens, 0).sum(1, dtype=np.float64)
            weights = read.best.sum(1)
        np.add.at(totals, read.texts, found)
        np.add.at(counts[:, 0], read.texts, weights)
    return (totals / np.maximum(counts, 1)).astype(np.float32)


def token_vectors(reader: Reader, ids: Sequence[int]) -> Floats:
    """Return a vector (n, D) of each token of a text."""
    found = np.empty((len(ids), reader.width), np.float32)
    for read in read_texts(reader, [ids]):
        found[read.places[read.best]] = read.tokens[read.best]
    return found


def word_vector(reader: Reader, sentence: str, begin: int, end: int) -> Floats:
    """Return the mean (D,) of the pieces of a part of a sentence. Raises ``DataError`` if the vocabulary lacks them."""
    ids, place = _pieces(reader, sentence, begin, end)
    found: Floats = token_vectors(reader, ids)[place].mean(0)
    return found


def static_vector(reader: Reader, word: str) -> tuple[list[str], Floats]:
    """Return the pieces of a word, and the mean of their rows of the table (D,). Errors as ``word_vector``."""
    ids, place = _pieces(reader, word, 0, len(word))
    found: Floats = reader.table[ids[place]].mean(0)
    return reader.tokenizer.tokens(ids[place]), found


def _pieces(reader: Reader, sentence: str, begin: int, end: int) -> tuple[list[int], slice]:
    """Return the ids of a sentence, and which of them cover a part, without the space before it."""
    (aligned,) = align(reader.tokenizer, [sentence])
    found = aligned.pieces(begin, end)
    if found is None:
        raise DataError(f"'{sentence[begin:end][:60]}' has no tokens in this vocabulary", where=sentence[:80])
    return aligned.ids.tolist(), slice(*found)


def read_texts(reader: Reader, texts: Sequence[Sequence[int]]) -> Iterator[LayerStates]:
    """Yield what the model makes of texts, given as ids, window by window; shorter windows come first."""
    held, limits = InMemoryTokens(texts), np.full(len(texts), reader.max_tokens)
    cut = cut_windows(held.lengths.astype(np.int64), limits, max(1, reader.max_tokens // 2))
    sizes = cut.ends - cut.begins
    for size in np.unique(sizes):
        same = np.flatnonzero(sizes == size)
        step = max(1, _TOKENS // (int(size) + 2))
        for start in range(0, len(same), step):
            chosen = same[start : start + step]
            numbers, begins = cut.contexts[chosen], cut.begins[chosen]
            ids = held.gather_parts(numbers, begins, sizes[chosen]).reshape(len(chosen), -1)  # (B, T)
            text = torch.from_numpy(ids[:, ::-1].copy() if reader.backwards else ids)
            # With the symbols around it in training.
            begin, end = (torch.full((len(ids), 1), id, dtype=torch.int64) for id in (BOS_ID, EOS_ID))
            row = torch.cat((begin, text, end) if isinstance(reader.model, Bert) else (begin, text), 1)
            with torch.inference_mode():
                layout = PackedLayout.unpacked(len(ids))
                states = reader.model.hidden(row.to(reader.device), layout, layers=reader.layer).cpu().numpy()
            tokens = states[:, 1 : 1 + ids.shape[1]]
            places = begins[:, None] + np.arange(ids.shape[1])
            best = (places >= cut.best_begins[chosen, None]) & (places < cut.best_ends[chosen, None])
            yield LayerStates(numbers, states[:, 0], tokens[:, ::-1] if reader.backwards else tokens, places, best)
