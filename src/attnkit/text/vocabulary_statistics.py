"""Statistics of files encoded with a vocabulary."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.chunks import LINE_END, ChunkCounter
from attnkit.kernels.words import NoTextError
from attnkit.protocols import UNK_ID
from attnkit.text.line_blocks import LineBlock, read_blocks
from attnkit.text.lines import read_lines
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import has_counting
from attnkit.text.word_splits import MAX_DISTINCT

_LINES = 4096  # lines encoded at once


@dataclass
class Statistics:
    """Statistics of files encoded with a vocabulary."""

    n_lines: int = 0
    n_words: int = 0  #: number of words, separated by white space
    n_characters: int = 0  #: number of characters after normalization, including a space before each line
    n_covered: int = 0  #: characters contained in a single token; all others are encoded as bytes or unknown
    n_tokens: int = 0
    n_unknown: int = 0
    longest: int = 0  #: number of tokens of the longest line
    longest_path: str | None = None
    longest_line: int | None = None  #: number of the longest line in its file, counted from 1

    @property
    def coverage(self) -> float:
        """Share of the characters encoded without single bytes and ``<unk>``."""
        return min(1.0, self.n_covered / self.n_characters) if self.n_characters else 1.0

    @property
    def tokens_per_word(self) -> float:
        """Tokens per word."""
        return self.n_tokens / self.n_words if self.n_words else 0.0

    @property
    def unknown_rate(self) -> float:
        """Share of the tokens that are unknown."""
        return self.n_unknown / self.n_tokens if self.n_tokens else 0.0


def statistics(tokenizer: Tokenizer, files: Sequence[Path]) -> Statistics:
    """Encode files and count tokens, words and characters, in bounded memory."""
    stats, usage = Statistics(), _Usage(tokenizer)
    counter = _ChunkStatistics(usage) if has_counting() else None
    for path in files:
        n_before = stats.n_lines
        for sizes in _line_sizes(path, counter, usage):
            if len(sizes) and int(sizes.max()) > stats.longest:
                stats.longest, stats.longest_path = int(sizes.max()), str(path)
                stats.longest_line = stats.n_lines - n_before + int(sizes.argmax()) + 1
            stats.n_lines += len(sizes)
    if counter is not None:
        counter.finish()
    whole = [len(tokenizer.bytes_of(id).decode("utf-8", errors="ignore")) for id in range(tokenizer.vocab_size)]
    whole[UNK_ID] = 0
    stats.n_words, stats.n_characters = usage.n_words, usage.n_characters
    stats.n_tokens, stats.n_unknown = int(usage.tokens.sum()), int(usage.tokens[UNK_ID])
    stats.n_covered = int(usage.tokens @ np.array(whole, dtype=np.int64))
    return stats


def _line_sizes(path: Path, counter: "_ChunkStatistics | None", usage: "_Usage") -> Iterator[NDArray[np.int64]]:
    """Yield the number of tokens of each line, batch by batch, and count in ``usage``."""
    if counter is None:
        reader = read_lines(path)
        while lines := list(islice(reader, _LINES)):
            yield usage.add_lines(lines)
        return
    for block in read_blocks(path):
        sizes = counter.add(block)
        yield usage.add_lines(block.lines()) if sizes is None else sizes


class _Usage:
    """Uses of each token, and counts of words and characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens = np.zeros(tokenizer.vocab_size, dtype=np.int64)
        self.n_words = self.n_characters = 0
        #: spaces counted before each line: a token of its own in kind ``char``, which lines do not have
        self.space = 0 if tokenizer.config.kind == "char" else 1
        self._plain = tokenizer.config.normalize == "none" and not tokenizer.config.lowercase

    def length(self, text: str) -> int:
        """Return the number of characters after normalization."""
        return len(text if self._plain else self.tokenizer.normalize(text))

    def add_lines(self, lines: Sequence[str]) -> NDArray[np.int64]:
        """Count lines and return the number of tokens of each."""
        encoded = self.tokenizer.encode(lines)
        flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int64)
        self.tokens += np.bincount(flat, minlength=len(self.tokens))
        self.n_words += sum(len(line.split()) for line in lines)
        self.n_characters += sum(self.length(line) + self.space for line in lines if line)
        return np.fromiter(map(len, encoded), np.int64, len(encoded))


class _ChunkStatistics:
    """Distinct chunks of the lines so far, each encoded once."""

    def __init__(self, usage: _Usage) -> None:
        self._usage = usage
        self._clear()

    def _clear(self) -> None:
        self._chunks = ChunkCounter()
        self._ids: list[NDArray[np.int32]] = []  # token ids of all chunks, one after the other
        # Tokens of each chunk. The last item is that of ``LINE_END``, which is -1.
        self._sizes = np.zeros(1, np.int32)
        self._n_begun = 0  # lines of kind ``char`` that are not empty

    def add(self, block: LineBlock) -> NDArray[np.int64] | None:
        """Count a block and return the tokens of each line; None if a chunk is too long."""
        try:
            found = self._chunks.feed(block.raw, runs=self._usage.tokenizer.config.kind != "word")
        except NoTextError as error:
            raise block.fault() from error
        if found is None:
            return None
        numbers = found[0]
        n_known, n_now = len(self._sizes) - 1, len(self._chunks)
        if n_now > n_known:
            encoded = self._usage.tokenizer.encode_chunks(self._chunks.texts(np.arange(n_known, n_now)))
            self._ids.append(np.fromiter(chain.from_iterable(encoded), np.int32))
            new = np.fromiter(map(len, encoded), np.int32, len(encoded))
            self._sizes = np.concatenate([self._sizes[:-1], new, np.zeros(1, np.int32)])
        ends = np.flatnonzero(numbers == LINE_END)
        sizes = np.diff(np.cumsum(self._sizes[numbers], dtype=np.int64)[ends], prepend=0)
        if not self._usage.space:  # the space before the line is not part of it
            is_empty = np.diff(ends, prepend=-1) == 1
            sizes -= ~is_empty
            self._n_begun += int(np.count_nonzero(~is_empty))
        if n_now > MAX_DISTINCT:
            self.finish()
        return sizes

    def finish(self) -> None:
        """Count the uses of all chunks so far, and forget them."""
        usage, counts = self._usage, self._chunks.counts
        if len(counts):
            flat = np.concatenate(self._ids)
            usage.tokens += np.bincount(flat, np.repeat(counts, self._sizes[:-1]), len(usage.tokens)).astype(np.int64)
        for begin in range(0, len(counts), _LINES):
            some = np.arange(begin, min(begin + _LINES, len(counts)))
            for chunk, n in zip(self._chunks.texts(some), counts[some].tolist(), strict=True):
                usage.n_words += n * len(chunk.split())
                usage.n_characters += n * usage.length(" " + chunk)
        if self._n_begun:
            (space,) = usage.tokenizer.encode_chunks([""])[0]
            usage.tokens[space] -= self._n_begun
            usage.n_characters -= self._n_begun
        self._clear()
