"""Text that repeats: words in a row, and lines without case, spaces and marks."""

from __future__ import annotations

import re
import string
from itertools import islice

MIN_REPEATS = 4  #: repetitions in a row that are reported
MAX_REPEATED = 8  #: words of what is repeated
_MIN_REPEATED = 5  # repetitions of a piece of text without spaces
_MARKS = string.punctuation.encode() + b" \t"
# Two to eight characters of scripts without spaces, again and again. One character may be drawn out: ははははは.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff"
_AGAIN = re.compile(f"([{_UNSPACED}](?:[{_UNSPACED}、，。]{{1,7}}?))\\1{{{_MIN_REPEATED - 1},}}")


def fold(line: str) -> bytes:
    """Return a line without case, spaces and ASCII marks; a line of marks is kept."""
    whole = line.casefold().encode("utf-8", "surrogatepass")
    return whole.translate(None, _MARKS) or whole


def count_repeats(words: list[str], enough: int | None = None) -> int:
    """Return how often a sequence of up to ``MAX_REPEATED`` words repeats in a row.

    With ``enough``, counting stops there.

    >>> count_repeats("a b a b a b c".split())
    3
    """
    most = 1 if words else 0
    for length in range(1, min(MAX_REPEATED, len(words) // 2) + 1):
        in_row = longest = 0  # words in a row equal to those ``length`` before
        for word, before in zip(islice(words, length, None), words, strict=False):
            if word != before:
                in_row = 0
                continue
            in_row += 1
            if in_row > longest:
                longest = in_row
                if enough is not None and 1 + longest // length >= enough:
                    return 1 + longest // length
        most = max(most, 1 + longest // length)
    return most


def _may_repeat(words: list[str]) -> bool:
    """Return whether a word comes ``MIN_REPEATS`` times at equal distances."""
    for n in range(1, min(MAX_REPEATED, len(words) // MIN_REPEATS) + 1):
        for one, other, third, fourth in zip(words, words[n:], words[2 * n :], words[3 * n :], strict=False):
            if one == other == third == fourth:
                return True
    return False


def has_repeats(line: str, words: list[str]) -> bool:
    """Return whether words of a line repeat in a row, also in text without spaces.

    Words without letters do not count: rows of numbers and marks may be meant.

    >>> has_repeats("no no no no", "no no no no".split()), has_repeats("0 0 0 0", "0 0 0 0".split())
    (True, False)
    """
    # Few lines have so many words twice, and fewer the same word at four equal distances.
    if len(words) - len(set(words)) >= MIN_REPEATS - 1 and _may_repeat(words):
        # A word without letters is replaced by its place, which repeats nothing.
        told = [word if any(map(str.isalpha, word)) else f"{place}" for place, word in enumerate(words)]
        if count_repeats(told, MIN_REPEATS) >= MIN_REPEATS:
            return True
    if line.isascii():
        return False
    found = _AGAIN.search(line)
    return found is not None and len(set(found[1])) > 1
