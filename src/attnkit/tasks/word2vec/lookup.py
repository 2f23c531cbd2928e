"""Words as people type them, looked up in a vocabulary: as they stand, else lower-cased."""

from __future__ import annotations

from collections.abc import Sequence

from attnkit.tasks.word2vec.vectors import Vectors


def resolve_words(vectors: Vectors, words: Sequence[str]) -> list[str]:
    """Return words as the vocabulary has them. Raises ``UnknownWordError`` for one that it lacks."""
    found = []
    for word in words:
        forms = [form for form in (word, word.lower()) if vectors.get_index(form) is not None]
        if not forms:
            raise vectors.unknown(word)
        found.append(forms[0])
    return found
