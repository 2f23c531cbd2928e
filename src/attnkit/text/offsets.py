"""Which characters each token covers, and which tokens begin words, for every kind of vocabulary."""

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
NONE = -1  #: index of the first piece of a word without pieces


@dataclass(frozen=True, eq=False)
class Aligned:
    """A text as pieces; piece i represents its characters ``begins[i]`` up to, but not including, ``ends[i]``.

    The space before a word belongs to its first piece. Pieces that are parts of one character all represent it. Begins
    and ends never decrease from one piece to the next.
    """

    ids: Longs
    begins: Longs
    ends: Longs

    def pieces(self, begin: int, end: int) -> tuple[int, int] | None:
        """Return the range of pieces that cover characters ``begin`` up to ``end``; None if none does."""
        covering = np.flatnonzero((self.ends > begin) & (self.begins < end))
        return (int(covering[0]), int(covering[-1]) + 1) if len(covering) and begin < end else None

    def cut(self, text: str, first: int, behind: int) -> str:
        """Return the characters of ``text`` that pieces ``first`` up to ``behind`` represent, stripped of spaces."""
        return text[int(self.begins[first]) : int(self.ends[behind - 1])].strip() if first < behind else ""


@dataclass(frozen=True, eq=False)
class EncodedWords:
    """The words of a sentence as pieces."""

    ids: Longs
    firsts: Longs  #: (n_words,) index of each word's first piece; ``NONE`` for a word without pieces


def align(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Aligned]:
    """Return the pieces of each text and the characters they represent; ids and errors as ``Tokenizer.encode``'s."""
    space = len(tokenizer.word_prefix)
    chunks = [tokenizer.chunks(text) for text in texts]
    unique = list(dict.fromkeys(chain.from_iterable(chunks)))
    parts = [tokenizer.parts(tokenizer.word_prefix + chunk) for chunk in unique]
    plain = list(dict.fromkeys(text for line in parts for text, id in line if id is None))
    located = dict(zip(plain, tokenizer.encode_with_offsets(plain), strict=True))
    tables: dict[str, Longs] = {}  # (n, 3) id, begin and end of the pieces of each chunk, from its first character
    for chunk, line in zip(unique, parts, strict=True):
        rows: list[tuple[int, int, int]] = []
        n_before = -space
        for text, id in line:
            spans = located[text] if id is None else [(id, 0, len(text))]
            rows += [(piece, begin + n_before, end + n_before) for piece, begin, end in spans]
            n_before += len(text)
        table = np.array(rows, np.int64).reshape(-1, 3)
        # Pieces extend over the characters behind them that no piece represents, such as marks joined with a letter.
        begin, end, closed = len(chunk), len(chunk), len(chunk)
        for row in range(len(rows) - 1, -1, -1):
            _, here, behind = rows[row]
            closed = closed if (here, behind) == (begin, end) else max(behind, begin)
            begin, end = here, behind
            table[row, 2] = closed
        tables[chunk] = table
    # Single characters lack the space before the first chunk.
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
    """Return the words of each sentence as pieces, as in a text with a space between them."""
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
    """Word boundaries: an id continues a word if its ``first`` is non-zero and equals the previous id's ``last``.

    A ``last`` of 3 fits every ``first`` but 0: a space alone belongs to the word that it precedes.
    """

    first: Kinds  #: (V,)
    last: Kinds  #: (V,)

    def word_starts(self, ids: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Mark the word starts in ids (B, T); padding and special ids are words of their own."""
        first = self.first[ids]
        starts: npt.NDArray[np.bool_] = first == _APART
        before = self.last[ids[:, :-1]]
        starts[:, 1:] |= (first[:, 1:] != before) & (before != _OPEN)
        starts[:, :1] = True
        return starts


def word_boundaries(tokenizer: Tokenizer) -> WordBoundaries:
    """Return how the ids of a vocabulary join; those of whole words never do."""
    kind, n_fixed = tokenizer.config.kind, len(SPECIALS) + len(tokenizer.config.symbols)
    first, last = np.zeros((2, tokenizer.vocab_size), np.uint8)
    for id in range(n_fixed, tokenizer.vocab_size if kind != "word" else 0):
        text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
        if kind in ("wordpiece", "bert"):  # the entry itself says whether it continues a word
            first[id], last[id] = _LETTERS if tokenizer.is_continuation(id) else _APART, _LETTERS
        elif text and not text.isspace():
            first[id], last[id] = _APART if text[0].isspace() else _kind(text[0]), _kind(text[-1])
        elif text and kind != "char":
            last[id] = _OPEN
    return WordBoundaries(first, last)


def ordinary_tokens(tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """Return the ids that represent text: neither special nor unused, nor symbols."""
    n_fixed = len(SPECIALS) + len(tokenizer.config.symbols)
    return np.array([id for id in range(n_fixed, tokenizer.vocab_size) if tokenizer.bytes_of(id)], np.int64)


@functools.cache
def _kind(character: str) -> int:
    # U+FFFD represents a byte of a character, more likely a letter than not.
    letter = character.isalnum() or unicodedata.category(character)[0] == "M" or character in _INSIDE
    return _LETTERS if letter or character == "\ufffd" else _MARKS


def sentence_ends(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """Return (V,) which ids end a sentence: with a full stop or the like, maybe followed by a quote or bracket."""
    ends = np.zeros(tokenizer.vocab_size, np.bool_)
    for id in range(len(SPECIALS) + len(tokenizer.config.symbols), tokenizer.vocab_size):
        text = tokenizer.bytes_of(id).decode("utf-8", errors="replace")
        ends[id] = text.rstrip(_CLOSING).endswith(_STOPS)
    return ends
