"""Distinct words with how often each occurs: the vocabulary of word vectors, as text that is strictly read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import RunError

FILE = "words.tsv"
"""The name under which a run's checkpoints hold the list."""
MAX_WORDS = 1 << 28
"""Of a list. A word takes some 100 bytes in memory."""


@dataclass(frozen=True, eq=False)
class WordVocabulary:
    """Words in the order of their ids: by falling count, among equals as they first occur."""

    words: list[str]
    """None is empty or holds a tab or a line feed; all differ."""
    counts: NDArray[np.int64]
    """(V,) how often each word occurs in the text."""

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, WordVocabulary) and self.words == other.words
        return same and isinstance(other, WordVocabulary) and bool(np.array_equal(self.counts, other.counts))

    __hash__ = None  # type: ignore[assignment]

    @property
    def total(self) -> int:
        """Occurrences of all words together."""
        return int(self.counts.sum())

    def index(self, word: str) -> int | None:
        """Return the id of a word, None for one that is not there."""
        return self._index.get(word)

    def ids(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the id of each word, -1 for those that are not there."""
        return np.fromiter((self._index.get(word, -1) for word in words), np.int64, len(words))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: id for id, word in enumerate(self.words)}

    def to_bytes(self) -> bytes:
        """Return the list as UTF-8 text, one ``word<TAB>count`` a line."""
        return "".join(f"{word}\t{n}\n" for word, n in zip(self.words, self.counts.tolist(), strict=True)).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, where: str = FILE) -> WordVocabulary:
        """Read what ``to_bytes`` gives. Raises ``RunError`` naming the line that cannot be one of it."""
        try:
            lines = data.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise _damaged(where, data.count(b"\n", 0, error.start) + 1, "is no UTF-8") from error
        if lines.pop():
            raise _damaged(where, len(lines) + 1, "is cut off")
        if len(lines) > MAX_WORDS:
            raise _damaged(where, MAX_WORDS + 1, f"is more than the {MAX_WORDS:,} words that a list may have")
        words, counts, last = [], np.empty(len(lines), np.int64), 1 << 62
        for number, line in enumerate(lines):
            word, tab, count = line.partition("\t")
            if not (word and tab and count.isascii() and count.isdigit() and len(count) < 20):
                raise _damaged(where, number + 1, "is not a word, a tab and a count")
            if (n := int(count)) > last:
                raise _damaged(where, number + 1, "has a higher count than the line before")
            words.append(word)
            counts[number] = last = n
        found = cls(words, counts)
        if len(found._index) != len(words):
            twice = next(number for number, word in enumerate(words) if found._index[word] != number)
            raise _damaged(where, found._index[words[twice]] + 1, "repeats a word")
        return found


def _damaged(where: str, line: int, what: str) -> RunError:
    help = "take it from another checkpoint, or train again"
    return RunError(f"the list of words is damaged: line {line} {what}", where=f"{where}:{line}", help=help)
