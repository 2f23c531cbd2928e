"""Forms of the same word, by their stems."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from attnkit.text.word_boundaries import find_tokens

MIN_STEM = 3  #: characters
_LONG = 6  # characters of a word whose end may change
_ENDINGS = {
    "",
    *"adeimnorstxy",
    "as",
    "de",
    "ed",
    "em",
    "en",
    "er",
    "es",
    "et",
    "ia",
    "ie",
    "is",
    "le",
    "ne",
    "os",
    "st",
}
_ENDINGS |= {"te", "ens", "ern", "est", "ing", "ten", "tem", "ter", "tes"}
"""Endings of Latin-script languages that a form may add; other scripts may add any two letters."""


def is_inflected(form: str, word: str) -> bool:
    """Return whether two words are likely to be forms of one: they share a stem.

    A short form must be the beginning of the word but for accents; a long one may lose two letters, as verbs do.

    >>> is_inflected("Haus", "Häusern"), is_inflected("schwarz", "schwarzen"), is_inflected("Mann", "Mantel")
    (True, True, False)
    """
    one, other = _fold(form), _fold(word)
    shared = next((k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    lost, added = one[shared:], other[shared:]
    if shared < MIN_STEM or len(lost) > (2 if len(one) >= _LONG else 0):
        return False
    return not added or added in _ENDINGS or (len(added) <= 2 and not added.isascii())


def _fold(word: str) -> str:
    """Return a word in lower case and without accents."""
    decomposed = unicodedata.normalize("NFD", word.casefold())
    return "".join(character for character in decomposed if unicodedata.category(character) != "Mn")


def count_inflected(text: str, phrases: Sequence[str]) -> int:
    """Return how often a text has one of the phrases, in any form.

    The words of a phrase must follow each other, each with its stem.

    >>> count_inflected("zwei schwarze Hunde und ein Hund", ["schwarzer Hund", "Hund"])
    2
    """
    words = [text[begin:end] for begin, end in find_tokens(text)]
    wanted = [[phrase[begin:end] for begin, end in find_tokens(phrase)] for phrase in phrases]
    wanted.sort(key=len, reverse=True)
    n_found = place = 0
    while place < len(words):
        fits = (own for own in wanted if own and len(own) <= len(words) - place and _has_at(words, place, own))
        found = next(fits, None)
        n_found += found is not None
        place += len(found) if found is not None else 1
    return n_found


def _has_at(words: Sequence[str], place: int, phrase: Sequence[str]) -> bool:
    return all(form == word or is_inflected(form, word) for form, word in zip(phrase, words[place:], strict=False))
