"""Where words begin in a row of ids, by tables over the vocabulary. Knows no models.

An id joins the word before it if its text goes on where the other's ends: letters after letters, punctuation after
punctuation, with no space between: `` say`` `` (`` ``hel`` ``lo`` ``).`` are four words.
"""

from __future__ import annotations

import functools
import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from attnkit.protocols import SPECIALS
from attnkit.text.tokenizer import Tokenizer

Kinds = npt.NDArray[np.uint8]
_APART, _LETTERS, _MARKS, _OPEN = 0, 1, 2, 3
_STOPS = (".", "!", "?", "…", "。", "！", "？")
_CLOSING = "\"'”’»)]"
_INSIDE = "'’"
"""They stand inside words, as in don't."""


@dataclass(frozen=True)
class WordBoundaries:
    """How ids join: an id goes on with a word if its ``first`` is not 0 and is the ``last`` of the id before.

    A ``last`` of 3 goes with every ``first`` but 0: a space alone belongs to the word that it stands before.
    """

    first: Kinds
    """(V,)"""
    last: Kinds
    """(V,)"""

    def word_starts(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Return where in rows of ids (B, T) a word begins; padding and special ids are words of their own."""
        first = self.first[ids]
        found: npt.NDArray[np.bool_] = first == _APART
        before = self.last[ids[:, :-1]]
        found[:, 1:] |= (first[:, 1:] != before) & (before != _OPEN)
        found[:, :1] = True
        return found


def word_boundaries(tokenizer: Tokenizer) -> WordBoundaries:
    """Return how the ids of a vocabulary join; those of whole words never do."""
    first, last = np.zeros((2, tokenizer.vocab_size), np.uint8)
    if tokenizer.config.kind != "word":
        for id in range(len(SPECIALS) + len(tokenizer.config.symbols), tokenizer.vocab_size):
            first[id], last[id] = _ends(tokenizer, id)
    return WordBoundaries(first, last)


def ordinary_tokens(tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """Return the ids that stand for text: neither special nor unused, nor symbols."""
    n_fixed = len(SPECIALS) + len(tokenizer.config.symbols)
    return np.array([id for id in range(n_fixed, tokenizer.vocab_size) if tokenizer.bytes_of(id)], np.int64)


def _ends(tokenizer: Tokenizer, id: int) -> tuple[int, int]:
    text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
    if tokenizer.config.kind in ("wordpiece", "bert"):  # which says itself what goes on
        return (_LETTERS if tokenizer.is_continuation(id) else _APART), _LETTERS
    if not text or text.isspace():
        return _APART, (_OPEN if text and tokenizer.config.kind != "char" else _APART)
    return (_APART if text[0].isspace() else _kind(text[0])), _kind(text[-1])


@functools.cache
def _kind(character: str) -> int:
    # U+FFFD stands for a byte of which a character is made: a letter sooner than not.
    letter = character.isalnum() or unicodedata.category(character)[0] == "M" or character in _INSIDE
    return _LETTERS if letter or character == "\ufffd" else _MARKS


def sentence_ends(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Return (V,) which ids end a sentence: with a full stop or the like, a quote or a bracket after it or not."""
    found = np.zeros(tokenizer.vocab_size, np.bool_)
    for id in range(len(SPECIALS) + len(tokenizer.config.symbols), tokenizer.vocab_size):
        text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
        found[id] = text.rstrip(_CLOSING).endswith(_STOPS)
    return found
