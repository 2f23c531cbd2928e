"""A word in several sentences: the one static vector that it has in all, and contextual ones where there is an encoder.

Word vectors give a word one vector, whatever it means; an encoder like BERT gives it one per sentence, and
has a static one too, of its embeddings. Torch is loaded where there is an encoder to run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError, UsageError
from attnkit.tasks.language_modeling.loading import is_language
from attnkit.tasks.word2vec.vectors import Vectors, resolve_words

WordEncoder = Callable[[str, int, int], NDArray[np.float32]]
"""(sentence, start, stop): the vector that the word at these characters has in this sentence, (D,)."""


@dataclass(frozen=True)
class Cosine:
    """How alike a word's vectors are in two sentences, numbered from 1."""

    sentences: tuple[int, int]
    static: float  #: 1: the same vector
    contextual: float | None  #: None without an encoder


@dataclass(frozen=True)
class WordComparison:
    """A word in several sentences."""

    word: str  #: spelling of the vocabulary
    found: list[str]  #: word form in each sentence
    pieces: list[str] | None
    """Tokens whose mean is the static vector; None if the word has a vector of its own."""
    static: list[float]
    contextual: list[list[float]] | None  #: one vector per sentence; None without an encoder
    cosines: list[Cosine]

    def as_dictionary(self) -> dict[str, Any]:
        """Return all of it for JSON."""
        return asdict(self)


def encoder_of(path: Path, layer: int | None = None) -> WordEncoder | None:
    """Return what gives a word a vector in each sentence, after so many layers; None for a run of word vectors.

    The vector of a word is the mean of its pieces'.
    """
    if not is_language(path):
        return None
    from attnkit.analysis.embed_transformer import open_reader, word_vector

    reader = open_reader(path, layer)
    return lambda sentence, start, stop: word_vector(reader, sentence, start, stop)


def compare_contexts(
    path: Path, sentences: Sequence[str], word: str, encoder: WordEncoder | None = None
) -> WordComparison:
    """Look a word up, and let an encoder, if there is one, say what it is in each sentence.

    Args:
        path: word vectors, or a run of BERT or GPT, whose embeddings are looked at.
        sentences: two or more that hold the word.
        word: in any case.
        encoder: of ``encoder_of``.

    Raises:
        UsageError: fewer than two sentences.
        DataError: a sentence lacks the word, or the vocabulary does.
    """
    if len(sentences) < 2:
        raise UsageError(
            "two sentences are needed to compare", help='give two: "I eat an apple." "Apple released iOS."'
        )
    places = [place_of(word, sentence, number) for number, sentence in enumerate(sentences, 1)]
    known, pieces, static = word, None, None
    if is_language(path):
        from attnkit.analysis.embed_transformer import open_reader, static_vector

        pieces, static = static_vector(open_reader(path), word)
    else:
        vectors = Vectors.load(path, mmap=True)
        (known,) = resolve_words(vectors, [word])
        static = vectors[known]
    seen = None
    if encoder is not None:
        seen = [np.asarray(encoder(text, *place), np.float64) for text, place in zip(sentences, places, strict=True)]
    cosines = [
        Cosine((i + 1, j + 1), 1.0, None if seen is None else cosine(seen[i], seen[j]))
        for i, j in combinations(range(len(sentences)), 2)
    ]
    return WordComparison(
        word=known,
        found=[text[start:stop] for text, (start, stop) in zip(sentences, places, strict=True)],
        pieces=pieces,
        static=np.asarray(static, np.float64).tolist(),
        contextual=None if seen is None else [vector.tolist() for vector in seen],
        cosines=cosines,
    )


def place_of(word: str, sentence: str, number: int) -> tuple[int, int]:
    """Return where a word first stands by itself in a sentence, in whatever case. Raises ``DataError`` if nowhere."""
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sentence, re.IGNORECASE)
    if found is None:
        raise DataError(
            f"'{word[:60]}' does not occur in this sentence: {sentence[:80]}",
            where=f"sentence:{number}",
            help="choose a word that all sentences have with --word",
        )
    return found.start(), found.end()


def cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the cosine of two vectors, 0 where one of them is zero."""
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0
