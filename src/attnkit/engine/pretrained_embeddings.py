"""Initialization of embeddings from word vectors.

The files ``model.embeddings`` and ``model.target_embeddings`` are read once; a resumed run does not need them.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnkit.data.prepared_dir import StatusEvent, WarningEvent
from attnkit.engine.registry import load_symbol
from attnkit.engine.resolve import EMBEDDING_FILES
from attnkit.engine.run_config import RunConfig
from attnkit.errors import DataError, UsageError
from attnkit.models.layers import word_vectors
from attnkit.protocols import SPECIALS
from attnkit.text.tokenizer import Tokenizer

VECTORS_PATH = "tasks.word2vec.vectors:Vectors"
"""Class that reads word vectors, as an argument of ``registry.load_symbol``."""
SPREAD_WARNING = 2  #: ratio of standard deviations above which ``model.scale_embeddings`` is suggested
COVERAGE_WARNING = 0.5  #: share of words with a vector below which the message is a warning


@dataclass(frozen=True)
class EmbeddingSource:
    """Word vectors of the model's width, for one embedding matrix."""

    key: str  #: configuration key that names the vectors
    name: str
    vectors: Any  #: instance of the class at ``VECTORS_PATH``
    scaled: bool = False  #: whether to scale the vectors to the standard deviation of the random embeddings


@dataclass(frozen=True)
class EmbeddingMatch:
    """Matches between vocabulary entries and word vectors."""

    # Ids and words, then counts for the message.
    words: Mapping[int, str]  #: id -> word whose vector initializes it
    n_words: int  #: entries that are words
    n_lowered: int  #: entries found only in lower case
    n_composed: int  #: entries with a vector composed of n-grams
    n_parts: int  #: entries that continue a word and therefore have no word vector


def open_embeddings(config: RunConfig) -> list[EmbeddingSource | None]:
    """Open the word vectors of source and target embeddings; None for unset keys.

    Raises ``UsageError`` if the width differs from the model's.
    """
    sources: list[EmbeddingSource | None] = []
    for key in EMBEDDING_FILES:
        if (name := getattr(config.model, key, None)) is None:
            sources.append(None)
            continue
        # Loaded by name, as the engine must not import a task.
        vectors, width = load_symbol(VECTORS_PATH).load(Path(name)), config.model.d_model
        if vectors.vector_size != width:
            raise UsageError(
                f"the vectors of {name} have width {vectors.vector_size:,}, the embeddings {width:,}",
                where=f"model.{key}",
                help=f"add --set model.d_model={vectors.vector_size}, or give vectors of the model's width",
            )
        sources.append(EmbeddingSource(f"model.{key}", name, vectors, config.model.scale_embeddings))
    return sources


def init_embeddings(
    model: Any, opened: Sequence[EmbeddingSource | None], texts: Mapping[str, bytes]
) -> Iterator[StatusEvent | WarningEvent]:
    """Initialize embeddings of a new model from word vectors; yield messages.

    Rows without a vector keep their random values. ``texts`` are the vocabulary files of the checkpoint, name ->
    content. Raises ``UsageError`` if no word of the vocabulary has a vector, ``DataError`` if a vector is not finite.
    """
    # The target's vocabulary is missing if both sides share one.
    names = ("tokenizer.json", "tokenizer.target.json")
    # With one matrix for both sides, index -1 is the same as 0.
    for source, side, name in zip(opened, (0, -1), names, strict=True):
        if source is None:
            continue
        tokenizer = Tokenizer.from_json(texts.get(name, texts[names[0]]))
        match = find_words(tokenizer, source.vectors.key_to_index, source.vectors.unseen)
        if not match.words:
            what = f"none of the {match.n_words:,} words of the vocabulary has a vector in {source.name}"
            help = "check the language and tokenization of the vectors, or train vectors: attnkit word2vec train TEXT"
            raise UsageError(what, where=source.key, help=help)
        rows = np.stack([np.asarray(source.vectors[word], np.float32) for word in match.words.values()])  # (n, D)
        finite = np.isfinite(rows).all(1)  # (n,)
        if not finite.all():
            word = list(match.words.values())[int(np.argmin(finite))]
            raise DataError(f"the vector of '{word}' is not finite", where=source.name)
        weight = word_vectors(model)[side]  # (V, D)
        # Standard deviations of the random rows and of the vectors.
        drawn, spread = float(weight.detach().std()), float(rows.std())
        if source.scaled and spread:
            # One factor for all rows preserves directions and relative lengths.
            rows *= np.float32(drawn / spread)
        with torch.no_grad():
            weight[torch.tensor(list(match.words))] = torch.from_numpy(rows).to(weight)  # one indexed write
        yield from map(WarningEvent, source.vectors.warnings)
        # Continuations of words are not counted, as they have no vectors.
        percent = 100 * len(match.words) / match.n_words
        text = f"{source.key}: {len(match.words):,} of {match.n_words:,} words ({percent:.1f} %) "
        text += f"initialized from {source.name}"
        # Only counts above 0 are mentioned.
        text += f", {match.n_lowered:,} of them in lower case" if match.n_lowered else ""
        text += f", {match.n_composed:,} composed of n-grams" if match.n_composed else ""
        text += f"; {match.n_parts:,} word continuations have no vector" if match.n_parts else ""
        yield WarningEvent(text) if len(match.words) < COVERAGE_WARNING * match.n_words else StatusEvent(text)
        if not source.scaled and not drawn / SPREAD_WARNING <= spread <= drawn * SPREAD_WARNING:
            what = f"{source.key}: standard deviation {spread:.2g}, random embeddings {drawn:.2g}"
            yield StatusEvent(f"{what}; --set model.scale_embeddings=true scales them")


def find_words(
    tokenizer: Tokenizer, known: Container[str], unseen: Callable[[str], object | None] | None = None
) -> EmbeddingMatch:
    """Return the vocabulary entries with a vector.

    Subword vectors (``word2vec train --tokenizer``) are recognized by the ``▁`` of a known entry, and all entries are
    looked up as displayed. With word vectors, an entry is a word if it has a leading space or is punctuation; it is
    looked up as spelled, then in lower case. Any other entry continues a word. ``unseen`` composes the vector of a word
    that is not ``known`` from n-grams, or returns None.
    """
    # Entries of only white space are not words.
    ids = [id for id in range(len(SPECIALS), tokenizer.vocab_size) if tokenizer.bytes_of(id).strip()]
    if alone := tokenizer.config.kind == "char":  # single-byte entries encode only unknown characters
        ids = [id for id in ids if tokenizer.encode([tokenizer.bytes_of(id).decode("utf-8", "replace")]) == [[id]]]
    # Id -> text as displayed, with ▁ for a leading space.
    pieces = dict(zip(ids, tokenizer.tokens(ids), strict=True))
    if any(len(piece) > 1 and piece.startswith("▁") and piece in known for piece in pieces.values()):
        return EmbeddingMatch({id: piece for id, piece in pieces.items() if piece in known}, len(ids), 0, 0, 0)
    words, n_parts, n_lowered, n_composed = {}, 0, 0, 0
    for id in ids:
        try:
            text = tokenizer.bytes_of(id).decode("utf-8")
        except UnicodeDecodeError:  # part of a character
            text = ""
        # Subword vocabularies mark the start of a word by a space; in a character vocabulary, every entry is a word.
        starts, word = text.startswith(" ") or alone or not any(sign.isalnum() for sign in text), text.strip()
        if not (starts and word):
            n_parts += 1
            continue
        # As spelled first: "Apple" and "apple" may both have vectors.
        if word in known:
            words[id] = word
        elif word.lower() in known:
            words[id] = word.lower()
            n_lowered += 1
        elif unseen is not None and unseen(word) is not None:
            words[id] = word
            n_composed += 1
    return EmbeddingMatch(words, len(ids) - n_parts, n_lowered, n_composed, n_parts)
