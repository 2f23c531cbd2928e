"""Words, numbers and marks of lines, as arrays for statistics over a corpus.

Letters: N lines, S and T words of a source and a target line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnkit.text.lines import is_blank

MAX_WORDS = 32  #: words of a line that are compared; the rest is left out
_MAX_CHARACTERS = 16 * MAX_WORDS  # of a line that is split into words

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Ids = NDArray[np.int32]  #: numbers of words, 0 for none
_END_OF_LINE = 1  # its number among those of words

# Scripts without spaces between words: every character is a word. Then words of any other script, then marks.
# Python's \w has no vowel signs, which belong to words of Indic, Arabic and Hebrew text.
_SIGNS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]"
    rf"|[\w{_SIGNS}]+|[^\w\s]|\n"
)
_PAUSES = ',،、，;；:：()（）"«»„“”'
_CODES = 0x20000  # code points whose class is looked up; those above are as the last one
_BATCH = 1024  # lines encoded at once
_QUESTIONS = "?？؟"
_EXCLAMATIONS = "!！"
STOP, QUESTION, EXCLAMATION = 1, 2, 3  #: classes of the last mark of a line; a full stop or none is the first


@functools.cache
def _classes() -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which code points are digits, and which are pauses."""
    is_digit = np.fromiter(map(str.isdecimal, map(chr, range(_CODES))), np.bool_, _CODES)
    return is_digit, np.isin(np.arange(_CODES), [*map(ord, _PAUSES)])


class _Numbers(dict[str, int]):
    """Numbers of words in the order in which they are first asked for."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


class WordNumbers:
    """Numbers of words, the same for both sides."""

    def __init__(self) -> None:
        self._numbers = _Numbers({"": 0, "\n": _END_OF_LINE})
        self._is_telling = np.zeros(1, np.bool_)
        self._is_number = np.zeros(1, np.bool_)

    def encode(self, text: str) -> Ids:
        """Return the numbers (W,) of words and marks of a text in lower case.

        Every ``\\n`` is one of them.
        """
        words = _WORD.findall(text)
        return np.fromiter(map(self._numbers.__getitem__, words), np.int32, len(words))

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def is_number(self) -> NDArray[np.bool_]:
        """Flags of words that are numbers."""
        self._update()
        return self._is_number

    @property
    def is_telling(self) -> NDArray[np.bool_]:
        """Flags of words that are telling if shared: numbers, three characters or more."""
        self._update()
        return self._is_telling

    def _update(self) -> None:
        if len(self._is_number) < len(self):
            words = list(self._numbers)
            self._is_number = np.array([word.isdigit() for word in words])
            self._is_telling = np.array([len(word) > 2 or word.isdigit() for word in words])


class Side:
    """The lines of one side with their lengths, and their words and marks on demand.

    Takes about 200 bytes per line beside the text.
    """

    def __init__(self, lines: Sequence[str], words: WordNumbers) -> None:
        self.lines, self.words = lines, words
        n = len(lines)
        self.lengths = np.log(np.fromiter(map(len, lines), np.float64, n) + 4.0)
        self.blank = np.fromiter(map(is_blank, lines), np.bool_, n)
        self.hashes = np.fromiter(map(hash, lines), np.int64, n)
        # Filled for the lines that were asked for: in a large corpus, few of all.
        self._ids: Ids = np.zeros((n, MAX_WORDS), np.int32)
        self._n_words = np.full(n, -1, np.int16)  # -1: not yet encoded
        self._marks = np.zeros((n, 3), np.int8)

    def __len__(self) -> int:
        return len(self.lines)

    def take(self, lines: Ints) -> Side:
        """Return a side of some of the lines."""
        return Side([self.lines[line] for line in lines.tolist()], self.words)

    def ids(self, lines: Ints) -> Ids:
        """Return the word numbers of some lines (n, longest), 0 beyond the end of a line."""
        self._encode(lines)
        longest = int(self._n_words[lines].max(initial=1))
        return self._ids[lines, : max(1, longest)]

    def marks(self, lines: Ints) -> NDArray[np.int8]:
        """Return counts of numbers and pauses, and the class of the last mark (n, 3)."""
        self._encode(lines)
        return self._marks[lines]

    def _encode(self, lines: Ints) -> None:
        new = np.unique(lines[self._n_words[lines] < 0])
        for begin in range(0, len(new), _BATCH):
            self._encode_batch(new[begin : begin + _BATCH])

    def _encode_batch(self, lines: Ints) -> None:
        texts = [self.lines[line][:_MAX_CHARACTERS] for line in lines.tolist()]
        text = "".join([f"{text}\n" for text in texts]).lower()
        numbers = self.words.encode(text)
        ends = np.flatnonzero(numbers == _END_OF_LINE)
        n_words = np.diff(ends, prepend=-1) - 1
        row = np.repeat(np.arange(len(lines)), n_words + 1)
        column = np.arange(len(numbers)) - np.repeat(ends - n_words, n_words + 1)
        kept = (column < MAX_WORDS) & (numbers != _END_OF_LINE)
        self._ids[lines[row[kept]], column[kept]] = numbers[kept]
        self._n_words[lines] = np.minimum(n_words, MAX_WORDS)
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        owner = np.cumsum(codes == 10)  # a line's own end is already the next one's
        codes = np.minimum(codes, _CODES - 1)
        is_digit, is_pause = (of_class[codes] for of_class in _classes())
        is_digit[1:] &= ~is_digit[:-1]  # only the first of a number
        for place, found in enumerate((is_digit, is_pause)):
            self._marks[lines, place] = np.minimum(np.bincount(owner[found], minlength=len(lines)), 99)
        self._marks[lines, 2] = [*map(_end, texts)]


def _end(line: str) -> int:
    """Return the class of the last mark of a line."""
    last = line[-1:]
    if last.isspace():
        last = line.rstrip()[-1:]
    return QUESTION if last and last in _QUESTIONS else EXCLAMATION if last and last in _EXCLAMATIONS else STOP
