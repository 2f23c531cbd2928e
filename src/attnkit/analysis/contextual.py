"""Static and contextual vectors of a word in several sentences.

Word vectors have one vector per word, whatever its meaning. An encoder like BERT computes one per sentence and also has
a static one, in its embedding table. Torch is imported only if an encoder is run.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError, UsageError
from attnkit.io.plain_data import PlainResult
from attnkit.tasks.language_modeling.config import is_language
from attnkit.tasks.word2vec.vectors import Vectors, resolve_words

WordEncoder = Callable[[str, int, int], NDArray[np.float32]]  #: (sentence, start, stop) -> (D,) vector


@dataclass(frozen=True)
class Cosine:
    """Cosines of a word's vectors in two sentences, numbered from 1."""

    sentences: tuple[int, int]
    static: float  #: always 1: the vector is the same
    contextual: float | None  #: None without an encoder


@dataclass(frozen=True)
class WordComparison(PlainResult):
    """Vectors of a word in several sentences."""

    word: str  #: spelling in the vocabulary
    found: list[str]  #: word form in each sentence
    pieces: list[str] | None  #: tokens whose mean is the static vector; None if the word has its own vector
    static: list[float]
    contextual: list[list[float]] | None  #: one vector per sentence; None without an encoder
    cosines: list[Cosine]


def encoder_of(path: Path, layer: int | None = None) -> WordEncoder | None:
    """Return BERT's or GPT's word encoder at ``layer``; None for word vectors."""
    if not is_language(path):
        return None
    from attnkit.analysis.embed_transformer import open_reader, word_vector

    return partial(word_vector, open_reader(path, layer))


def compare_contexts(
    path: Path, sentences: Sequence[str], word: str, encoder: WordEncoder | None = None
) -> WordComparison:
    """Compare the vectors of a word in two or more sentences, ignoring case.

    The static vector is from the word vectors at ``path``, or from the embedding table of BERT or GPT. Raises
    ``UsageError`` for fewer than two sentences, ``DataError`` if a sentence or the vocabulary lacks the word.
    """
    if len(sentences) < 2:
        help = 'give two: "I eat an apple." "Apple released iOS."'
        raise UsageError("at least two sentences are required", help=help)
    spans: list[tuple[int, int]] = []  # first whole-word match in each sentence
    for number, sentence in enumerate(sentences, 1):
        match = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sentence, re.IGNORECASE)
        if match is None:
            what = f"'{word[:60]}' does not occur in this sentence: {sentence[:80]}"
            help = "choose a word that occurs in all sentences: --word WORD"
            raise DataError(what, where=f"sentence:{number}", help=help)
        spans.append(match.span())
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
        seen = [np.asarray(encoder(text, *span), np.float64) for text, span in zip(sentences, spans, strict=True)]
    cosines = [
        Cosine((i + 1, j + 1), 1.0, None if seen is None else cosine(seen[i], seen[j]))
        for i, j in combinations(range(len(sentences)), 2)
    ]
    return WordComparison(
        word=known,
        found=[text[start:stop] for text, (start, stop) in zip(sentences, spans, strict=True)],
        pieces=pieces,
        static=np.asarray(static, np.float64).tolist(),
        contextual=None if seen is None else [vector.tolist() for vector in seen],
        cosines=cosines,
    )


def cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the cosine of two vectors; 0 if one of them is zero."""
    lengths = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one @ other) / lengths if lengths else 0.0
