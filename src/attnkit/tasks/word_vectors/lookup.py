"""Words as people type them, looked up in a vocabulary: as they stand, else lower-cased, else with a hint."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from attnkit.errors import DataError
from attnkit.tasks.word_vectors.vectors import Vectors


def known_words(vectors: Vectors, words: Sequence[str], path: Path) -> list[str]:
    """Return words as the vocabulary has them. Raises ``DataError`` for one that it lacks."""
    return [known_word(vectors, word, path) for word in words]


def known_word(vectors: Vectors, word: str, path: Path) -> str:
    """Return a word as the vocabulary has it. Raises ``DataError`` where it lacks it."""
    known = vectors.key_to_index
    for form in (word, word.lower()):
        if form in known:
            return form
    close = difflib.get_close_matches(word.lower(), vectors.index_to_key[:50_000], n=1)
    raise DataError(
        f"'{word[:60]}' is not among the {len(known):,} words",
        where=str(path),
        help=f"did you mean '{close[0]}'?" if close else "words that are rarer than --min-count have no vector",
    )
