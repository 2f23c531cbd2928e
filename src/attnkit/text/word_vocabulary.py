"""Word lists with counts, and character n-grams of words (Bojanowski et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import RunError

FILE = "words.tsv"  #: file name of the word list in checkpoints
MAX_WORDS = 1 << 28  #: maximum number of words; each takes about 100 bytes of memory


@dataclass(frozen=True, eq=False)
class WordVocabulary:
    """Words in id order: by descending count, ties in order of first occurrence."""

    words: list[str]  #: distinct, non-empty words without tabs and line feeds
    counts: NDArray[np.int64]  #: (V,) number of occurrences of each word in the text

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, WordVocabulary):
            return NotImplemented
        return self.words == other.words and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]

    @property
    def total(self) -> int:
        """Total number of occurrences of all words."""
        return int(self.counts.sum())

    def index(self, word: str) -> int | None:
        """Return the id of a word, or None if it is unknown."""
        return self._index.get(word)

    def ids(self, words: Sequence[str]) -> NDArray[np.int64]:
        """Return the id of each word, -1 for unknown words."""
        return np.fromiter((self._index.get(word, -1) for word in words), np.int64, len(words))

    @cached_property
    def _index(self) -> dict[str, int]:
        return {word: id for id, word in enumerate(self.words)}

    def to_bytes(self) -> bytes:
        """Return the list as UTF-8 text, one ``word<TAB>count`` per line."""
        return "".join(f"{word}\t{n}\n" for word, n in zip(self.words, self.counts.tolist(), strict=True)).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, where: str = FILE) -> WordVocabulary:
        """Parse the bytes of ``to_bytes``; raise ``RunError`` at the first invalid line."""
        try:
            lines = data.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            raise _damaged(where, data.count(b"\n", 0, error.start) + 1, "is not UTF-8") from error
        if lines.pop():
            raise _damaged(where, len(lines) + 1, "is cut off")
        if len(lines) > MAX_WORDS:
            raise _damaged(where, MAX_WORDS + 1, f"exceeds the maximum of {MAX_WORDS:,} words")
        words, counts, last = [], np.empty(len(lines), np.int64), 1 << 62
        for number, line in enumerate(lines):
            word, tab, count = line.partition("\t")
            if not (word and tab and count.isascii() and count.isdigit() and len(count) < 20):
                raise _damaged(where, number + 1, "is not a word, a tab and a count")
            if (n := int(count)) > last:
                raise _damaged(where, number + 1, "has a higher count than the line before")
            words.append(word)
            counts[number] = last = n
        vocabulary = cls(words, counts)
        if len(vocabulary._index) != len(words):
            twice = next(number for number, word in enumerate(words) if vocabulary._index[word] != number)
            raise _damaged(where, vocabulary._index[words[twice]] + 1, "repeats a word")
        return vocabulary


def _damaged(where: str, line: int, what: str) -> RunError:
    help = "use another checkpoint, or train again"
    return RunError(f"the word list is damaged: line {line} {what}", where=f"{where}:{line}", help=help)


FNV_BASIS, FNV_PRIME = np.uint32(2166136261), np.uint32(16777619)  #: constants of the 32-bit FNV-1a hash
BLOCK = 1 << 16  #: words processed at a time, to bound memory

Longs = NDArray[np.int64]
Rows = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Subwords:
    """Character n-grams of words enclosed in ``<`` and ``>``, hashed into buckets."""

    min_n: int = 3  #: minimum length of an n-gram in characters
    max_n: int = 6  #: maximum length of an n-gram in characters; 0: no n-grams
    n_buckets: int = 2_000_000

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if min_n < 1, n_buckets < 1, or max_n < min_n and not 0."""
        if self.min_n < 1 or (self.max_n != 0 and self.max_n < self.min_n) or self.max_n < 0 or self.n_buckets < 1:
            raise ValueError(f"invalid min_n={self.min_n}, max_n={self.max_n} or n_buckets={self.n_buckets}")

    def buckets(self, word: str) -> Longs:
        """Return the buckets of all n-grams but ``<`` and ``>``, by start, then length."""
        return self._hash([word])[1]

    def tables(self, words: Sequence[str]) -> tuple[Longs, Rows]:
        """Return starts (V + 1,) and rows; word v has ``rows[starts[v]:starts[v + 1]]``."""
        n_words = len(words)
        if n_words + self.n_buckets > np.iinfo(np.int32).max:
            raise ValueError(f"too many rows: {n_words:,} words and {self.n_buckets:,} buckets")
        sizes, parts = np.zeros(n_words + 1, np.int64), [np.empty(0, np.int32)]
        for begin in range(0, n_words, BLOCK):
            counts, buckets = self._hash(words[begin : begin + BLOCK])
            sizes[begin + 1 : begin + len(counts) + 1] = counts + 1
            own = np.arange(begin, begin + len(counts))  # the row of the word itself comes first
            parts.append(np.insert(buckets + n_words, np.cumsum(counts) - counts, own).astype(np.int32))
        return np.cumsum(sizes), np.concatenate(parts)

    def vector(self, word: str, buckets: Floats) -> Floats | None:
        """Return the mean (D,) of the n-gram rows of an unseen word; None without n-grams."""
        rows = self.buckets(word)
        return buckets[rows].mean(axis=0, dtype=np.float32) if len(rows) else None

    def _hash(self, words: Sequence[str]) -> tuple[Longs, Longs]:
        """Return the number of n-grams of each word, and the buckets of all n-grams.

        All words are joined as bytes, and the hashes of all n-grams are extended together, byte by byte.
        """
        raw = [b"<" + word.encode("utf-8", "surrogateescape") + b">" for word in words]
        text = np.frombuffer(b"".join(raw), np.uint8)
        ends = np.cumsum([len(word) for word in raw], dtype=np.int64)
        begins = np.flatnonzero((text & 0xC0) != 0x80)
        ends = np.searchsorted(begins, ends)  # in characters, from here on
        widths = np.diff(begins, append=len(text))
        char_counts = np.diff(ends, prepend=0)
        first = np.repeat(ends - char_counts, char_counts)
        place, left = np.arange(len(begins)), np.repeat(ends, char_counts) - np.arange(len(begins))
        # fastText treats bytes as signed: those beyond ASCII also flip the upper 24 bits of the hash.
        signed = text.view(np.int8).astype(np.int32).view(np.uint32)
        hashes = np.full(len(begins), FNV_BASIS)
        by_length = np.zeros((len(begins), max(0, self.max_n - self.min_n + 1)), np.uint32)
        taken = np.zeros(by_length.shape, np.bool_)
        for n in range(1, self.max_n + 1):
            alive = np.flatnonzero(left >= n)
            for byte in range(int(widths.max(initial=0))):
                now = alive[widths[alive + n - 1] > byte]
                hashes[now] = (hashes[now] ^ signed[begins[now + n - 1] + byte]) * FNV_PRIME
            if n >= self.min_n:
                by_length[alive, n - self.min_n] = hashes[alive]
                taken[alive, n - self.min_n] = (n > 1) | ((place[alive] > first[alive]) & (left[alive] > 1))
        counts = np.add.reduceat(taken.sum(axis=1), ends - char_counts) if len(words) else np.empty(0, np.int64)
        return counts.astype(np.int64), (by_length[taken] % np.uint32(self.n_buckets)).astype(np.int64)


def composed(inputs: Floats, starts: Longs, rows: Rows) -> Floats:
    """Return word vectors (V, D): means of rows of ``inputs`` (V + n_buckets, D)."""
    n_words, step = len(starts) - 1, 1 << 12
    vectors = np.empty((n_words, inputs.shape[1]), np.float32)
    for begin in range(0, n_words, step):
        bounds = starts[begin : begin + step + 1]
        sums = np.add.reduceat(inputs[rows[bounds[0] : bounds[-1]]], bounds[:-1] - bounds[0])
        vectors[begin : begin + step] = sums / np.diff(bounds)[:, None]
    return vectors
