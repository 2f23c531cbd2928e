"""Character offsets and word boundaries of tokens, for every kind of vocabulary."""

import functools
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from attnkit.protocols import SPECIALS
from attnkit.text.tokenizer import Tokenizer

Longs = npt.NDArray[np.int64]
NONE = -1  #: index in ``firsts`` of a word without pieces


@dataclass(frozen=True, eq=False)
class Aligned:
    """Pieces of a text; piece i covers its characters ``begins[i]:ends[i]``.

    The space before a word belongs to its first piece. Pieces of the same character all cover that character.
    ``begins`` and ``ends`` never decrease.
    """

    ids: Longs
    begins: Longs
    ends: Longs

    def pieces(self, begin: int, end: int) -> tuple[int, int] | None:
        """Return the range of pieces that cover characters ``begin:end``, or None."""
        covering = np.flatnonzero((self.ends > begin) & (self.begins < end))
        return (int(covering[0]), int(covering[-1]) + 1) if len(covering) and begin < end else None

    def cut(self, text: str, first: int, behind: int) -> str:
        """Return the part of ``text`` that pieces ``first:behind`` cover, stripped."""
        return text[int(self.begins[first]) : int(self.ends[behind - 1])].strip() if first < behind else ""


@dataclass(frozen=True, eq=False)
class EncodedWords:
    """Pieces of the words of a sentence."""

    ids: Longs
    firsts: Longs  #: (n_words,) index of each word's first piece; ``NONE`` for a word without pieces


def align(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Aligned]:
    """Encode texts like ``Tokenizer.encode``, with the characters of each piece."""
    space = len(tokenizer.word_prefix)
    chunks = [tokenizer.chunks(text) for text in texts]
    unique = list(dict.fromkeys(chain.from_iterable(chunks)))
    parts = [tokenizer.parts(tokenizer.word_prefix + chunk) for chunk in unique]
    plain = list(dict.fromkeys(text for line in parts for text, id in line if id is None))
    located = dict(zip(plain, tokenizer.encode_with_offsets(plain), strict=True))
    tables: dict[str, Longs] = {}  # (n, 3) id, begin and end of each piece of a chunk, relative to the chunk
    for chunk, line in zip(unique, parts, strict=True):
        rows: list[tuple[int, int, int]] = []
        n_before = -space
        for text, id in line:
            spans = located[text] if id is None else [(id, 0, len(text))]
            rows += [(piece, begin + n_before, end + n_before) for piece, begin, end in spans]
            n_before += len(text)
        table = np.array(rows, np.int64).reshape(-1, 3)
        # A piece also covers following characters without a piece, such as combining marks merged with a letter.
        begin, end, closed = len(chunk), len(chunk), len(chunk)
        for row in range(len(rows) - 1, -1, -1):
            _, here, behind = rows[row]
            closed = closed if (here, behind) == (begin, end) else max(behind, begin)
            begin, end = here, behind
            table[row, 2] = closed
        tables[chunk] = table
    # For kind char, the space before the first chunk is not part of the text.
    n_dropped = int(tokenizer.config.kind == "char")
    aligned = []
    for line_chunks in chunks:
        pieces = [tables[chunk] for chunk in line_chunks]
        sizes = np.array([len(chunk) + space for chunk in line_chunks], np.int64)
        starts = np.repeat(np.cumsum(sizes) - sizes, [len(table) for table in pieces])[n_dropped:]
        ids, begins, ends = np.concatenate([np.empty((0, 3), np.int64), *pieces])[n_dropped:].T
        aligned.append(Aligned(ids.copy(), np.maximum(begins + starts, 0), np.maximum(ends + starts, 0)))
    return aligned


def encode_words(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[EncodedWords]:
    """Encode the words of each sentence as in a text with spaces between them."""
    spaced = ["", "" if tokenizer.word_prefix else " "]  # before the first word, and before the others
    texts = [spaced[number > 0] + word for words in sentences for number, word in enumerate(words)]
    encoded = iter(tokenizer.encode(texts))
    between = tokenizer.encode([" "])[0] if tokenizer.config.kind == "char" else []
    sentences_as_ids = []
    for words in sentences:
        ids: list[int] = []
        firsts = []
        for number in range(len(words)):
            ids += between if number else []
            pieces = next(encoded)
            firsts.append(len(ids) if pieces else NONE)
            ids += pieces
        sentences_as_ids.append(EncodedWords(np.array(ids, np.int64), np.array(firsts, np.int64)))
    return sentences_as_ids


Kinds = npt.NDArray[np.uint8]
_APART, _LETTERS, _MARKS, _OPEN = 0, 1, 2, 3
_STOPS = (".", "!", "?", "…", "。", "！", "？")
_CLOSING = "\"'”’»)]"
_INSIDE = "'’"  #: apostrophes inside words, as in don't


@dataclass(frozen=True)
class WordBoundaries:
    """Classes of the first and last character of each id, which determine words.

    An id continues a word if its ``first`` is not 0 and equals the ``last`` of the previous id, or if that is 3: a
    lone space belongs to the next word.
    """

    first: Kinds  #: (V,)
    last: Kinds  #: (V,)

    def word_starts(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Return (B, T) whether an id starts a word; padding and special ids always do."""
        first = self.first[ids]
        starts: npt.NDArray[np.bool_] = first == _APART
        before = self.last[ids[:, :-1]]
        starts[:, 1:] |= (first[:, 1:] != before) & (before != _OPEN)
        starts[:, :1] = True
        return starts


def word_boundaries(tokenizer: Tokenizer) -> WordBoundaries:
    """Return the word boundaries of a vocabulary; in kind ``word``, each id is a word."""
    kind, n_fixed = tokenizer.config.kind, len(SPECIALS) + len(tokenizer.config.symbols)
    first, last = np.zeros((2, tokenizer.vocab_size), np.uint8)
    for id in range(n_fixed, tokenizer.vocab_size if kind != "word" else 0):
        text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
        if kind in ("wordpiece", "bert"):  # the prefix of the entry shows whether it continues a word
            first[id], last[id] = _LETTERS if tokenizer.is_continuation(id) else _APART, _LETTERS
        elif text and not text.isspace():
            first[id], last[id] = _APART if text[0].isspace() else _kind(text[0]), _kind(text[-1])
        elif text and kind != "char":
            last[id] = _OPEN
    return WordBoundaries(first, last)


def ordinary_tokens(tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """Return the ids that represent text, without special, unused and symbol ids."""
    n_fixed = len(SPECIALS) + len(tokenizer.config.symbols)
    return np.array([id for id in range(n_fixed, tokenizer.vocab_size) if tokenizer.bytes_of(id)], np.int64)


@functools.cache
def _kind(character: str) -> int:
    # U+FFFD is part of a character, which is most likely a letter.
    letter = character.isalnum() or unicodedata.category(character)[0] == "M" or character in _INSIDE
    return _LETTERS if letter or character == "\ufffd" else _MARKS


def sentence_ends(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Return (V,) whether each id ends with final punctuation, closing quotes aside."""
    ends = np.zeros(tokenizer.vocab_size, np.bool_)
    for id in range(len(SPECIALS) + len(tokenizer.config.symbols), tokenizer.vocab_size):
        text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
        ends[id] = text.rstrip(_CLOSING).endswith(_STOPS)
    return ends
