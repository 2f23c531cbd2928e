"""Separation of punctuation marks from words."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import groupby

_IN_WORDS = frozenset("@#%&*/\\_†‡§¶•")  # punctuation of Unicode that belongs to the word it is next to
_WHOLE = re.compile(
    r"['’][^\W\d_]{1,2}|[^\W\d_]{1,2}['’]"  # 's and 'll, l' and qu' of text that is split already
    r"|&#?\w+;|\[[A-Z]+\]|-[A-Z]{2,4}-"  # &quot;, [UNK], -LRB-
    r"|(?:[^\W\d_]\.){2,}|[-+]\d[\d.,]*\d?"  # U.S., -5
)


def split_words(text: str) -> list[str]:
    """Split a text at white space, and marks off the ends of its words.

    >>> split_words("A guitar, (of) wood")
    ['A', 'guitar', ',', '(', 'of', ')', 'wood']
    """
    return [part for word in text.split() for part in separate_marks(word)]


@lru_cache(maxsize=1 << 16)
def separate_marks(word: str) -> tuple[str, ...]:
    """Split punctuation marks off the ends of a word without white space.

    Marks inside a word stay; equal marks in a row stay together.

    >>> separate_marks('(don\'t'), separate_marks('U.S.A..."'), separate_marks(":-)")
    (('(', "don't"), ('U.S.A', '...', '"'), (':-)',))
    """
    if word.isalnum():  # most words
        return (word,)
    begin, end = 0, len(word)
    while begin < end and _is_mark(word[begin]):
        begin += 1
    while end > begin and _is_mark(word[end - 1]):
        end -= 1
    if begin == end or (begin, end) == (0, len(word)) or _WHOLE.fullmatch(word):
        return (word,)  # marks alone, such as smileys, stay as they are
    before, after = (["".join(run) for _, run in groupby(part)] for part in (word[:begin], word[end:]))
    return (*before, word[begin:end], *after)


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "P" and character not in _IN_WORDS
