"""Vectors of lines, tokens and words, from the hidden states of a language model.

A text longer than the training sequences is read in overlapping windows; each token's vector is from the window that
shows the most context of it. Only windows of equal length are batched, without padding, so that a line's vector does
not depend on the rest of the batch. Letters: B windows, T tokens of a row, D model width.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.data.windows import InMemoryTokens, Longs, cut_windows
from attnkit.engine.checkpoint_metadata import read_run_config
from attnkit.engine.compiled_language_models import set_precision
from attnkit.engine.loading import LoadedModel, load_model
from attnkit.engine.vocabularies import read_tokenizer
from attnkit.errors import DataError, UsageError
from attnkit.kernels.simd.targets import Precision
from attnkit.models.bert import Bert
from attnkit.models.gpt import Gpt
from attnkit.models.layers import PackedLayout
from attnkit.protocols import BOS_ID, EOS_ID
from attnkit.tasks.language_modeling.config import LANGUAGE_TASKS
from attnkit.text.offsets import align
from attnkit.text.tokenizer import Tokenizer

What = Literal["mean", "cls", "static"]
Floats = npt.NDArray[np.float32]
_TOKENS = 4096  #: tokens per batch
_LONGEST = 512  #: tokens per row if neither positions nor training data limit it


@dataclass(frozen=True)
class Reader:
    """Language model with its tokenizer, for texts of any length."""

    model: Bert | Gpt
    tokenizer: Tokenizer
    layer: int  #: layer whose states are read; 0: the embeddings
    max_tokens: int  #: text tokens per row, without special tokens
    backwards: bool  #: whether the model reads right to left
    device: torch.device
    warnings: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Return the model width D."""
        wider = getattr(self.model, "embedding_map", None)  # of embeddings that are narrower than the layers
        return self.model.embedding.embedding_dim if wider is None else int(wider.out_features)

    @property
    def table(self) -> Floats:
        """Return the embedding table (V, D)."""
        found: Floats = self.model.embedding.weight.detach().cpu().numpy()
        return found


@dataclass(frozen=True)
class LayerStates:
    """Hidden states of a batch of windows of equal length."""

    texts: Longs  #: (B,) index of the text of each window
    first: Floats  #: (B, D) states of the special token at the beginning
    tokens: Floats  #: (B, T, D) states of the tokens, in text order
    places: Longs  #: (B, T) position of each token in its text
    best: npt.NDArray[np.bool_]  #: (B, T) whether this window is the one with the most context of the token


def open_reader(
    path: Path,
    layer: int | None = None,
    device: str = "auto",
    checkpoint: str | None = None,
    precision: Precision = "float32",
    notify: Callable[[str], None] = lambda text: None,
) -> Reader:
    """Open a run of BERT or GPT, pretrained or fine-tuned.

    ``notify`` receives a note before loops for ``precision`` are compiled.

    Raises:
        RunError: a missing, damaged or unsuitable run or checkpoint.
        UsageError: an unknown layer, or a precision that the model or the device does not have.
    """
    chosen, warnings = RunFolder(path).checkpoint(checkpoint)
    config: Any = read_run_config(chosen, *LANGUAGE_TASKS)
    check_layer(config, layer)
    opened = load_model(path, config.task, device=device, checkpoint=chosen.name)
    set_precision(opened, precision, notify)
    return make_reader(opened, layer, tuple(warnings))


def check_layer(config: Any, layer: int | None) -> None:
    """Raise ``UsageError`` for a layer that a language model does not have."""
    n_layers = config.model.n_layers
    if layer is not None and not 0 <= layer <= n_layers:
        help = f"choose 0 (embeddings) to {n_layers} (last layer)"
        raise UsageError(f"this model has no layer {layer}", where="--layer", help=help)


def make_reader(opened: LoadedModel, layer: int | None = None, warnings: tuple[str, ...] = ()) -> Reader:
    """Return a reader of a loaded BERT or GPT, pretrained or fine-tuned.

    Raises:
        UsageError: an unknown layer.
    """
    config = opened.config
    check_layer(config, layer)
    model = opened.model if isinstance(opened.model, Bert | Gpt) else opened.model.encoder
    learned_from = getattr(config.data, "sequence_length", None), getattr(config, "max_row_length", None)
    limits = [limit for limit in (config.model.max_positions, *learned_from) if limit is not None]
    longest = min(limits, default=_LONGEST)
    return Reader(
        model=cast("Bert | Gpt", model),
        tokenizer=read_tokenizer(opened.checkpoint),
        layer=config.model.n_layers if layer is None else layer,
        max_tokens=longest - (2 if isinstance(model, Bert) else 1),
        backwards=getattr(config, "direction", "") == "right-to-left",
        device=opened.device,
        warnings=warnings,
    )


def line_vectors(reader: Reader, lines: Sequence[str], what: Literal["mean", "cls"]) -> Floats:
    """Return one vector per line (n, D): the mean of its tokens, or its [CLS] vector.

    A line without tokens has the mean 0. The [CLS] vector of a line in several windows is the mean over the windows.
    Raises ``UsageError`` for ``cls`` with GPT.
    """
    if what == "cls" and isinstance(reader.model, Gpt):
        help = "use --what mean"
        raise UsageError(
            "GPT has no [CLS] vector: its first token attends only to itself", where="--what cls", help=help
        )
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
    """Return one vector per token of a text (n, D)."""
    found = np.empty((len(ids), reader.width), np.float32)
    for read in read_texts(reader, [ids]):
        found[read.places[read.best]] = read.tokens[read.best]
    return found


def word_vector(reader: Reader, sentence: str, begin: int, end: int) -> Floats:
    """Return the mean vector (D,) of a span; raise ``DataError`` if it has no tokens."""
    ids, place = _pieces(reader, sentence, begin, end)
    found: Floats = token_vectors(reader, ids)[place].mean(0)
    return found


def static_vector(reader: Reader, word: str) -> tuple[list[str], Floats]:
    """Return a word's tokens and mean embedding (D,). Errors: see ``word_vector``."""
    ids, place = _pieces(reader, word, 0, len(word))
    found: Floats = reader.table[ids[place]].mean(0)
    return reader.tokenizer.tokens(ids[place]), found


def _pieces(reader: Reader, sentence: str, begin: int, end: int) -> tuple[list[int], slice]:
    """Return a sentence's ids and the slice of a span, without the preceding space."""
    (aligned,) = align(reader.tokenizer, [sentence])
    found = aligned.pieces(begin, end)
    if found is None:
        raise DataError(f"'{sentence[begin:end][:60]}' has no tokens in this vocabulary", where=sentence[:80])
    return aligned.ids.tolist(), slice(*found)


def read_texts(reader: Reader, texts: Sequence[Sequence[int]]) -> Iterator[LayerStates]:
    """Yield the states of texts, given as ids, in batches; shorter windows first."""
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
            # Add the special tokens of training.
            begin, end = (torch.full((len(ids), 1), id, dtype=torch.int64) for id in (BOS_ID, EOS_ID))
            row = torch.cat((begin, text, end) if isinstance(reader.model, Bert) else (begin, text), 1)
            with torch.inference_mode():
                layout = PackedLayout.unpacked(len(ids))
                states = reader.model.hidden(row.to(reader.device), layout, layers=reader.layer).cpu().numpy()
            tokens = states[:, 1 : 1 + ids.shape[1]]
            places = begins[:, None] + np.arange(ids.shape[1])
            best = (places >= cut.best_begins[chosen, None]) & (places < cut.best_ends[chosen, None])
            yield LayerStates(numbers, states[:, 0], tokens[:, ::-1] if reader.backwards else tokens, places, best)
