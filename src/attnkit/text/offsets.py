"""Which characters each token covers, and which tokens begin words, for every kind of vocabulary."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from attnkit.protocols import SPECIALS
from attnkit.text.tokenizer import MAX_CHUNK, Tokenizer, symbol_pattern

Longs = npt.NDArray[np.int64]
NONE = -1
"""The place of the first piece of a word that has none."""
Located = list[tuple[int, int, int]]
"""(id, begin, end) of each piece."""


@dataclass(frozen=True, eq=False)
class Aligned:
    """A text as pieces; piece i represents its characters ``begins[i]`` up to, but not including, ``ends[i]``.

    The space before a word is its first piece's. Pieces that are parts of one character all represent it. Places never
    fall from one piece to the next.
    """

    ids: Longs
    begins: Longs
    ends: Longs

    def pieces(self, begin: int, end: int) -> tuple[int, int] | None:
        """Return the pieces, first and behind last, that hold characters ``begin`` up to ``end``; None if none does."""
        found = np.flatnonzero((self.ends > begin) & (self.begins < end))
        return (int(found[0]), int(found[-1]) + 1) if len(found) and begin < end else None

    def cut(self, text: str, first: int, behind: int) -> str:
        """Return what pieces ``first`` up to ``behind`` represent in the text they were made of, stripped of spaces."""
        return text[int(self.begins[first]) : int(self.ends[behind - 1])].strip() if first < behind else ""


@dataclass(frozen=True, eq=False)
class EncodedWords:
    """The words of a sentence as pieces."""

    ids: Longs
    firsts: Longs
    """(n_words,) place of each word's first piece; ``NONE`` for a word that has no pieces."""


def align(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Aligned]:
    """Return the pieces of each text, the same as ``Tokenizer.encode`` gives, with their places.

    Raises:
        DataError: a text holds a lone surrogate, which is not a character.
    """
    chunks = [tokenizer.chunks(text) for text in texts]
    unique = list(dict.fromkeys(chain.from_iterable(chunks)))
    known = dict(zip(unique, _locate(tokenizer, unique), strict=True))
    single, space = tokenizer.config.kind == "char", len(tokenizer.word_prefix)
    return [_joined(line, [known[chunk] for chunk in line], single, space) for line in chunks]


def encode_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[EncodedWords]:
    """Return the words of each sentence as pieces, as if they stood in a text with a space between them.

    Raises:
        DataError: a word holds a lone surrogate.
    """
    spaced = ["", "" if tokenizer.word_prefix else " "]  # before the first word, and before the others
    texts = [spaced[number > 0] + word for words in sentences for number, word in enumerate(words)]
    encoded = iter(tokenizer.encode(texts))
    between = tokenizer.encode([" "])[0] if tokenizer.config.kind == "char" else []
    found = []
    for words in sentences:
        ids: list[int] = []
        firsts = []
        for number in range(len(words)):
            if number:
                ids += between
            pieces = next(encoded)
            firsts.append(len(ids) if pieces else NONE)
            ids += pieces
        found.append(EncodedWords(np.array(ids, np.int64), np.array(firsts, np.int64)))
    return found


def _joined(chunks: Sequence[str], located: Sequence[Longs], single: bool, space: int) -> Aligned:
    """Put the pieces of chunks together, between which lies a space or none.

    Those of single characters lack the space before the first chunk.
    """
    if not chunks:
        return Aligned(*np.empty((3, 0), np.int64))
    sizes = np.array([len(chunk) + space for chunk in chunks])
    table = np.concatenate(located)
    starts = np.repeat(np.cumsum(sizes) - sizes, [len(part) for part in located])
    ids, begins, ends = table[int(single) :].T
    starts = starts[int(single) :]
    return Aligned(ids.copy(), np.maximum(begins + starts, 0), np.maximum(ends + starts, 0))


def _locate(tokenizer: Tokenizer, chunks: Sequence[str]) -> list[Longs]:
    """Return (n, 3) id, begin and end of the pieces of each chunk, whose own first character is number 0.

    The space that precedes every chunk, where one does, is number -1.
    """
    longest = None if tokenizer.config.kind == "word" else MAX_CHUNK
    parts = [_parts(tokenizer, tokenizer.word_prefix + chunk, longest) for chunk in chunks]
    plain = list(dict.fromkeys(text for line in parts for text, id in line if id is None))
    located = dict(zip(plain, tokenizer.encode_with_offsets(plain), strict=True))
    found = []
    for chunk, line in zip(chunks, parts, strict=True):
        rows: Located = []
        at = -len(tokenizer.word_prefix)
        for text, id in line:
            here = located[text] if id is None else [(id, 0, len(text))]
            rows += [(piece, begin + at, end + at) for piece, begin, end in here]
            at += len(text)
        found.append(_closed(rows, len(chunk)))
    return found


def _parts(tokenizer: Tokenizer, text: str, longest: int | None) -> list[tuple[str, int | None]]:
    """Return a chunk with its space as the parts that are encoded by themselves, symbols with their id."""
    if longest is None:
        return [(text, tokenizer.token_id(text[1:]))]
    pattern = symbol_pattern(tokenizer.config.symbols)
    parts = [text] if pattern is None else [part for part in pattern.split(text) if part]
    found: list[tuple[str, int | None]] = []
    for part in parts:
        symbol = tokenizer.token_id(part)
        if symbol is not None:
            found.append((part, symbol))
        else:
            found += [(part[i : i + longest], None) for i in range(0, len(part), longest)]
    return found


def _closed(rows: Located, length: int) -> Longs:
    """Give characters that no piece represents, as marks that were joined with a letter, to the pieces before them."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    begin, end, closed = length, length, length
    for row in range(len(rows) - 1, -1, -1):
        _, here, behind = rows[row]
        closed = closed if (here, behind) == (begin, end) else max(behind, begin)
        begin, end = here, behind
        table[row, 2] = closed
    return table


Kinds = npt.NDArray[np.uint8]
_APART, _LETTERS, _MARKS, _OPEN = 0, 1, 2, 3
_STOPS = (".", "!", "?", "…", "。", "！", "？")
_CLOSING = "\"'”’»)]"
_INSIDE = "'’"
"""They stand inside words, as in don't."""


@dataclass(frozen=True)
class WordBoundaries:
    """How ids join: an id continues with a word if its ``first`` is not 0 and is the ``last`` of the id before.

    A ``last`` of 3 goes with every ``first`` but 0: a space alone belongs to the word that it precedes.
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
    """Return the ids that represent text: neither special nor unused, nor symbols."""
    n_fixed = len(SPECIALS) + len(tokenizer.config.symbols)
    return np.array([id for id in range(n_fixed, tokenizer.vocab_size) if tokenizer.bytes_of(id)], np.int64)


def _ends(tokenizer: Tokenizer, id: int) -> tuple[int, int]:
    text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
    if tokenizer.config.kind in ("wordpiece", "bert"):  # which says itself what continues
        return (_LETTERS if tokenizer.is_continuation(id) else _APART), _LETTERS
    if not text or text.isspace():
        return _APART, (_OPEN if text and tokenizer.config.kind != "char" else _APART)
    return (_APART if text[0].isspace() else _kind(text[0])), _kind(text[-1])


@functools.cache
def _kind(character: str) -> int:
    # U+FFFD represents a byte of which a character is made: a letter sooner than not.
    letter = character.isalnum() or unicodedata.category(character)[0] == "M" or character in _INSIDE
    return _LETTERS if letter or character == "\ufffd" else _MARKS


def sentence_ends(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Return (V,) which ids end a sentence: with a full stop or the like, a quote or a bracket after it or not."""
    found = np.zeros(tokenizer.vocab_size, np.bool_)
    for id in range(len(SPECIALS) + len(tokenizer.config.symbols), tokenizer.vocab_size):
        text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
        found[id] = text.rstrip(_CLOSING).endswith(_STOPS)
    return found
