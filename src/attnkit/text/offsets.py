"""Which characters of a text each of its pieces stands for, and the other way round, for a vocabulary of any kind.

Pieces may be parts of a character, or unknown, and the vocabulary may lower-case and normalize: places always count the
characters of the text as it was given. Knows no models.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from attnkit.text.tokenizer import MAX_CHUNK, Tokenizer, symbol_pattern

Longs = npt.NDArray[np.int64]
NONE = -1
"""The place of the first piece of a word that has none."""
Located = list[tuple[int, int, int]]
"""(id, begin, end) of each piece."""


@dataclass(frozen=True, eq=False)
class Aligned:
    """A text as pieces; piece i stands for its characters ``begins[i]`` up to, but not including, ``ends[i]``.

    The space before a word is its first piece's. Pieces that are parts of one character all stand for it. Places never
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
        """Return what pieces ``first`` up to ``behind`` stand for in the text they were made of, stripped of spaces."""
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
        DataError: a text holds a lone surrogate, which is no character.
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

    The space that stands before every chunk, where one does, is number -1.
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
    """Give characters that no piece stands for, as marks that were joined with a letter, to the pieces before them."""
    table = np.array(rows, np.int64).reshape(-1, 3)
    begin, end, closed = length, length, length
    for row in range(len(rows) - 1, -1, -1):
        _, here, behind = rows[row]
        closed = closed if (here, behind) == (begin, end) else max(behind, begin)
        begin, end = here, behind
        table[row, 2] = closed
    return table
