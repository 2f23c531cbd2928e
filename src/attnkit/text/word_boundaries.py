"""Where words begin and end, in scripts with and without spaces."""

from __future__ import annotations

import re
import unicodedata

_NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
"""Letters of scripts without spaces: a word may begin and end between any two of them."""
_UNSPACED = re.compile(f"[{_NO_SPACES}]")
_TOKENS = re.compile(rf"[{_NO_SPACES}]|(?:(?![{_NO_SPACES}])\w)+|[^\w\s]")


def joins(character: str) -> bool:
    """Return whether a character belongs to a word together with letters beside it."""
    # Vowel signs of Indic scripts are marks, no letters.
    is_part = character.isalnum() or unicodedata.category(character)[0] == "M"
    return is_part and _UNSPACED.match(character) is None


def is_boundary(before: str, after: str) -> bool:
    """Return whether a word may end between two characters."""
    return not (joins(before) and joins(after))


def find_tokens(text: str) -> list[tuple[int, int]]:
    """Return begin and end of words, punctuation marks and unspaced letters.

    >>> [text[begin:end] for text in ["C++, 冰球 is"] for begin, end in find_tokens(text)]
    ['C', '+', '+', ',', '冰', '球', 'is']
    """
    return [match.span() for match in _TOKENS.finditer(text)]


def count_phrases(text: str, phrases: tuple[str, ...]) -> int:
    """Return how often one of the phrases is in a text, as words of its own.

    Of overlapping ones the longest counts.

    >>> count_phrases("Hund, Hunde und ein Hund", ("Hund",))
    2
    """
    longest_first = sorted(filter(None, phrases), key=len, reverse=True)
    n_found = place = 0
    while places := [at for phrase in longest_first if (at := text.find(phrase, place)) >= 0]:
        place = min(places)
        end = next((place + len(one) for one in longest_first if _is_at(text, place, one)), None)
        n_found += end is not None
        place = end or place + 1
    return n_found


def _is_at(text: str, begin: int, phrase: str) -> bool:
    """Return whether a text has a phrase at a place, as words of its own."""
    end = begin + len(phrase)
    return (
        text.startswith(phrase, begin)
        and (begin == 0 or is_boundary(text[begin - 1], text[begin]))
        and (end == len(text) or is_boundary(text[end - 1], text[end]))
    )
