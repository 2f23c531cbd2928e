r"""Bytes of text to numbers of words, block by block: each word that differs from all before gets the next number.

Words are what ``str.split`` finds, lines end at ``\n`` alone. Compiled where numba is installed, else in plain Python;
both give the same. What is held grows with the distinct words alone, however long a line or a word is. Knows no files.
"""

from __future__ import annotations

import codecs
import re
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.word_table import (
    LINE_END,
    MAX_WORD_BYTES,
    TOO_LONG,
    CompiledNumberer,
    NoTextError,
    Numbers,
    compiled_loops,
)

__all__ = ["LINE_END", "MAX_WORD_BYTES", "TOO_LONG", "NoTextError", "Numberer", "Numbers", "PlainNumberer", "fastest"]


class Numberer(Protocol):
    """What turns blocks of text into numbers and remembers the words."""

    def feed(self, block: bytes) -> Numbers:
        """Return the numbers of the words that end in this block, and ``LINE_END`` for each end of a line.

        A word that a block cuts off is found when the next one comes: so the last block of all ends with a line feed.

        Raises:
            NoTextError: A byte is not UTF-8.
        """
        ...

    def words(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return the words of some numbers."""
        ...

    def settle(self) -> Numbers | None:
        """Return what each number represents from now on, if some turned out to be the same lower-cased word."""
        ...

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each word has come."""
        ...

    @property
    def first(self) -> NDArray[np.int64]:
        """The place of each word in the order in which they first came."""
        ...


def fastest(lower: bool = False) -> Numberer:
    """Return what numbers words, lower-cased or as they are: compiled if numba is there, else in plain Python."""
    loops = compiled_loops()
    return PlainNumberer(lower) if loops is None else CompiledNumberer(lower, *loops)


class PlainNumberer:
    """Numbers words by a dictionary."""

    def __init__(self, lower: bool = False) -> None:
        self._lower = lower
        # Keeps bytes of a character that a block cuts off.
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""
        self._skips = False
        self._numbers: dict[str, int] = {}
        self._as_read: dict[str, int] = {}
        self._counts: list[int] = []

    def feed(self, block: bytes) -> Numbers:
        """Return the numbers of the words that end in this block."""
        # Bytes of a character that the last block cut off: an error may lie in them, before this block.
        pending = len(self._decoder.getstate()[0])
        try:
            text = self._rest + self._decoder.decode(block)
        except UnicodeDecodeError as error:
            raise NoTextError(error.start - pending, error.object[error.start]) from error
        out: list[int] = []
        if self._skips:
            # The rest of a word that was too long is skipped up to the next white space.
            space = re.search(r"\s", text)
            if space is None:
                return np.empty(0, np.int32)
            text = text[space.start() :]
            self._skips = False
            out.append(TOO_LONG)
        # \Z, not $: a line feed at the end is white space that ends the word.
        cut = re.search(r"\S*\Z", text)
        assert cut is not None
        self._rest = cut[0]
        for number, line in enumerate(text[: cut.start()].split("\n")):
            if number:
                out.append(LINE_END)
            # `or`: numbers count from 1 here, so that 0 means unknown.
            out += [self._as_read.get(word) or self._number(word) for word in line.split()]
        numbers = np.array(out, np.int32)
        numbers[numbers > 0] -= 1  # the dictionary counts from 1
        if len(self._rest.encode()) > MAX_WORD_BYTES:
            self._rest, self._skips = "", True
        # LINE_END and TOO_LONG are below 0.
        found, times = np.unique(numbers[numbers >= 0], return_counts=True)
        for word, n in zip(found.tolist(), times.tolist(), strict=True):
            self._counts[word] += n
        return numbers

    def _number(self, word: str) -> int:
        # At most four bytes per character: short words need not be encoded to be measured.
        if len(word) > MAX_WORD_BYTES // 4 and len(word.encode()) > MAX_WORD_BYTES:
            return TOO_LONG
        # Lower-casing may lengthen a word: measured again.
        known = word.lower() if self._lower else word
        if len(known) > MAX_WORD_BYTES // 4 and len(known.encode()) > MAX_WORD_BYTES:
            return TOO_LONG
        number = self._numbers.setdefault(known, len(self._numbers) + 1)
        if number > len(self._counts):
            self._counts.append(0)
        self._as_read[word] = number
        return number

    def words(self, numbers: NDArray[np.int64]) -> list[str]:
        """Return the words of some numbers."""
        # Insertion order is the order of numbers.
        names = list(self._numbers)
        return [names[number] for number in numbers.tolist()]

    def settle(self) -> None:
        """Return None: words are lower-cased before they are numbered."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each word has come."""
        return np.array(self._counts, np.int64)

    @property
    def first(self) -> NDArray[np.int64]:
        """The place of each word in the order in which they first came."""
        return np.arange(len(self._counts))
