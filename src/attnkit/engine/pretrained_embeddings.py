"""Word vectors as what a model's embeddings begin with (``model.embeddings``, ``model.target_embeddings``).

They are read once, when a run begins: a run that goes on has them in its weights, and the file may be gone by then.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.engine.inheritance import VECTORS
from attnkit.engine.registry import load_symbol
from attnkit.engine.run_config import RunConfig
from attnkit.errors import DataError, UsageError
from attnkit.protocols import SPECIALS
from attnkit.text.tokenizer import Tokenizer

VECTORS_PATH = "tasks.word2vec.vectors:Vectors"
"""What reads word vectors; a path of ``registry.load_symbol``."""
KEYS = VECTORS
"""Of the model's configuration: the source's, or the only ones; the target's."""
SPREAD_WARNING = 2
"""From which ratio of spreads on it is worth telling that vectors can be scaled."""
COVERAGE_WARNING = 0.5
"""Share of the words below which it is worth a warning that no more of them have a vector."""


class WordVectors(Protocol):
    """Word vectors, looked up by word."""

    @property
    def vector_size(self) -> int:
        """Width of a vector."""
        ...

    @property
    def key_to_index(self) -> Mapping[str, int]:
        """Word to row."""
        ...

    @property
    def unseen(self) -> Any:
        """Composes a vector from character n-grams; None for vectors without them."""
        ...

    @property
    def warnings(self) -> Sequence[str]:
        """Damaged checkpoints that were passed over."""
        ...

    def __getitem__(self, key: Any, /) -> Any:
        """Return the vector of a word, or the vectors (n, width) of words."""
        ...


@dataclass(frozen=True)
class EmbeddingSource:
    """Vectors that fit a model's width."""

    key: str
    """The key that names them."""
    name: str
    vectors: WordVectors
    scaled: bool = False
    """Whether they are scaled to the spread of the embeddings that were drawn."""


@dataclass(frozen=True)
class EmbeddingMatch:
    """Which entries of a vocabulary have a vector."""

    words: Mapping[int, str]
    """Id -> the word whose vector it gets."""
    n_words: int
    """Entries that could have one."""
    n_lowered: int
    """Those found as lower-cased words alone."""
    n_composed: int
    """Those that have no vector of their own, and get one of their n-grams."""
    n_parts: int
    """Entries that go on with a word, of which vectors of words know nothing."""


def check_embeddings_conflict(config: RunConfig, init_from: Path | None) -> None:
    """Raise ``UsageError`` where the embeddings would come from two places."""
    for key in KEYS:
        if init_from is not None and getattr(config.model, key, None) is not None:
            raise UsageError(
                f"the weights of {init_from} hold embeddings of their own",
                where=f"model.{key} beside --init-from",
                help="leave one of the two out",
            )


def open_embeddings(config: RunConfig) -> list[EmbeddingSource | None]:
    """Open the vectors that a model begins with, as ``KEYS`` has them; None where none are asked for.

    Raises:
        UsageError: they are not as wide as the model's embeddings, or are to be scaled and not there.
    """
    model = config.model
    if getattr(model, "scale_embeddings", False) and all(getattr(model, key, None) is None for key in KEYS):
        help = "name them by model.embeddings, or leave this out"
        raise UsageError("there are no vectors to scale", where="model.scale_embeddings", help=help)
    return [_opened(config, key) for key in KEYS]


def _opened(config: RunConfig, key: str) -> EmbeddingSource | None:
    name = getattr(config.model, key, None)
    if name is None:
        return None
    vectors, width = load_symbol(VECTORS_PATH).load(Path(name)), config.model.d_model
    if vectors.vector_size != width:
        raise UsageError(
            f"the vectors of {name} have {vectors.vector_size:,} numbers, the model's embeddings {width:,}",
            where=f"model.{key}",
            help=f"--set model.d_model={vectors.vector_size}, or vectors of the model's width",
        )
    return EmbeddingSource(f"model.{key}", name, vectors, config.model.scale_embeddings)


def init_embeddings(
    model: Any, opened: Sequence[EmbeddingSource | None], texts: Mapping[str, bytes]
) -> Iterator[StatusEvent | WarningEvent]:
    """Put vectors in the place of a fresh model's embeddings, row by row, and say how many words have one.

    Args:
        model: any that has ``word_vectors``; other rows stay as they were drawn.
        opened: what ``open_embeddings`` gave.
        texts: the vocabularies, by the names that they have in a checkpoint.

    Raises:
        UsageError: none of the words has a vector.
        DataError: a vector is not finite.
    """
    names = ("tokenizer.json", "tokenizer.target.json")
    for given, place, name in zip(opened, (0, -1), names, strict=True):
        if given is None:
            continue
        tokenizer = Tokenizer.from_json(texts.get(name, texts[names[0]]))
        found = find_words(tokenizer, given.vectors.key_to_index, given.vectors.unseen)
        if not found.words:
            raise UsageError(
                f"none of the {found.n_words:,} words of the vocabulary has a vector in {given.name}",
                where=given.key,
                help="vectors of another language or of other pieces; attnkit word2vec train makes some of this text",
            )
        drawn, spread = _fill(model.word_vectors()[place], found.words, given)
        text = coverage_message(found, given)
        yield from map(WarningEvent, given.vectors.warnings)
        yield WarningEvent(text) if len(found.words) < COVERAGE_WARNING * found.n_words else StatusEvent(text)
        if not given.scaled and not drawn / SPREAD_WARNING <= spread <= drawn * SPREAD_WARNING:
            what = f"{given.key}: their numbers spread by {spread:.2g}, and those that are drawn by {drawn:.2g}"
            yield StatusEvent(f"{what}; --set model.scale_embeddings=true scales them")


def _fill(weight: torch.Tensor, words: Mapping[int, str], given: EmbeddingSource) -> tuple[float, float]:
    """Fill rows, and return how far the numbers that were drawn and the given ones spread: standard deviations."""
    rows = np.stack([np.asarray(given.vectors[word], np.float32) for word in words.values()])
    finite = np.isfinite(rows).all(1)
    if not finite.all():
        word = list(words.values())[int(np.argmin(finite))]
        raise DataError(f"the vector of '{word}' is not finite", where=given.name)
    drawn, spread = float(weight.detach().std()), float(rows.std())
    if given.scaled and spread:
        rows *= np.float32(drawn / spread)
    with torch.no_grad():
        weight[torch.tensor(list(words))] = torch.from_numpy(rows).to(weight)
    return drawn, spread


def find_words(
    tokenizer: Tokenizer, known: Container[str], unseen: Callable[[str], object | None] | None = None
) -> EmbeddingMatch:
    """Return which entries of a vocabulary have a vector.

    Where the vectors are of the pieces of such a vocabulary (``word2vec train --tokenizer``) an entry is looked up as
    it is shown, with ``▁`` for a space. Else they are of words: an entry that begins with a space is a word, and is
    looked up without it, then lower-cased; one of signs alone is looked up as it stands; any other goes on with a word.
    ``unseen`` says what n-grams give for a word that has no vector of its own, None where they give nothing.
    """
    ids = [id for id in range(len(SPECIALS), tokenizer.vocab_size) if tokenizer.bytes_of(id).strip()]
    if alone := tokenizer.config.kind == "char":  # its bytes stand for what is no character of its own
        ids = [id for id in ids if tokenizer.encode([tokenizer.bytes_of(id).decode("utf-8", "replace")]) == [[id]]]
    pieces = dict(zip(ids, tokenizer.tokens(ids), strict=True))
    if any(len(piece) > 1 and piece.startswith("▁") and piece in known for piece in pieces.values()):
        return EmbeddingMatch({id: piece for id, piece in pieces.items() if piece in known}, len(ids), 0, 0, 0)
    spelled = {id: _word(tokenizer.bytes_of(id), alone) for id in ids}
    words, n_lowered, n_composed = {}, 0, 0
    for id, word in spelled.items():
        if word is None:
            continue
        if word in known:
            words[id] = word
        elif word.lower() in known:
            words[id] = word.lower()
            n_lowered += 1
        elif unseen is not None and unseen(word) is not None:
            words[id] = word
            n_composed += 1
    n_parts = sum(word is None for word in spelled.values())
    return EmbeddingMatch(words, len(ids) - n_parts, n_lowered, n_composed, n_parts)


def _word(raw: bytes, alone: bool) -> str | None:
    """Return the word that an entry is; None for a part of one. ``alone``: every entry stands for itself."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:  # a byte of a character
        return None
    if text.startswith(" ") or alone or not any(sign.isalnum() for sign in text):
        return text.strip() or None
    return None


def coverage_message(found: EmbeddingMatch, given: EmbeddingSource) -> str:
    """Return how many words have a vector, in words."""
    share = 100 * len(found.words) / found.n_words
    text = f"{given.key}: {len(found.words):,} of {found.n_words:,} words ({share:.1f} %) begin with a vector of "
    text += given.name
    if found.n_lowered:
        text += f", {found.n_lowered:,} of them with that of the lower-cased word"
    if found.n_composed:
        text += f", {found.n_composed:,} with one made of n-grams"
    if found.n_parts:
        text += f"; {found.n_parts:,} entries that go on with a word have none"
    return text
