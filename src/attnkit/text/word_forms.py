"""Forms of the same word, by their stems."""

from __future__ import annotations

import unicodedata

from attnkit.text.word_boundaries import find_tokens

MIN_STEM = 3  #: characters


def is_inflected(form: str, word: str) -> bool:
    """Return whether two words are likely to be forms of one: they share a stem.

    >>> is_inflected("Haus", "Häusern"), is_inflected("schwarz", "schwarzen"), is_inflected("Hund", "Katze")
    (True, True, False)
    """
    one, other = _fold(form), _fold(word)
    shared = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return shared >= MIN_STEM and len(one) - shared <= 2 and len(other) - shared <= 3


def _fold(word: str) -> str:
    """Return a word in lower case and without accents."""
    decomposed = unicodedata.normalize("NFD", word.casefold())
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def has_inflected(text: str, phrase: str) -> bool:
    """Return whether a text has a phrase in any form.

    Its words must follow each other, each with its stem.

    >>> has_inflected("zwei schwarze Hunde", "schwarzer Hund")
    True
    """
    wanted, words = ([one[begin:end] for begin, end in find_tokens(one)] for one in (phrase, text))
    return any(
        all(form == word or is_inflected(form, word) for form, word in zip(wanted, words[place:], strict=False))
        for place in range(len(words) - len(wanted) + 1)
        if wanted
    )
