"""Text files as word ids in a temporary file, read once, in blocks, whatever the length of a line."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError
from attnkit.kernels.words import LINE_END, TOO_LONG, NoTextError, Numberer, Numbers, fastest
from attnkit.protocols import UNK_ID
from attnkit.runtime.signals import release_library
from attnkit.text.hf_pipelines import CONTINUED
from attnkit.text.lines import LineCounts, guess, is_utf16, opened
from attnkit.text.long_lines import LineChunk, read_chunks
from attnkit.text.tokenizer import Tokenizer

_AT_ONCE = 1 << 18  # numbers


class TempIdFile:
    """Word numbers in a temporary file, which may be larger than memory; ``LINE_END`` ends a line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._size = 0

    def __len__(self) -> int:
        return self._size // 4

    def add(self, numbers: Numbers) -> None:
        """Append numbers."""
        self._size = self._put(self._size, numbers)

    def __iter__(self) -> Iterator[Numbers]:
        """Yield all numbers, block by block."""
        at = 0
        while at < self._size:
            numbers = np.empty(min(_AT_ONCE, (self._size - at) // 4), np.int32)
            view = numbers.data.cast("B")
            self._stream.seek(at)
            at += len(view)
            while view:
                if not (n_read := self._stream.readinto(view)):
                    raise OSError(errno.EIO, "what was written a moment ago is not there")
                view = view[n_read:]
            yield numbers

    def rewrite(self, change: Callable[[Numbers], Numbers]) -> None:
        """Replace each block by ``change(block)``, which must never return more numbers than it got so far."""
        end = 0
        for block in self:
            end = self._put(end, change(block))
        self._size = end

    def _put(self, at: int, numbers: Numbers) -> int:
        """Write numbers at a place and return where they end."""
        self._stream.seek(at)
        view = np.ascontiguousarray(numbers, np.int32).data.cast("B") if len(numbers) else memoryview(b"")
        at += len(view)
        while view:
            view = view[self._stream.write(view) :]
        return at


_BLOCK = 1 << 18
_LINES = 1024
_SIGNS = 1 << 20
_BOM = "\ufeff".encode()


@dataclass
class WordIds:
    """A text as numbers of its distinct words, which are numbered from 0 in the order of their first occurrence."""

    spool: TempIdFile
    counts: NDArray[np.int64]
    """Occurrences of each word."""
    first: NDArray[np.int64]
    """Rank of each word by its first occurrence."""
    names: Callable[[NDArray[np.int64]], list[str]]
    """Return the words of some numbers."""
    n_words: int = 0
    """All words, also those without a number: too long ones, and tokens for unknown text."""
    n_bytes: int = 0

    @property
    def n_long(self) -> int:
        """Words without a number."""
        return self.n_words - int(self.counts.sum())


def words_to_ids(sources: Sequence[Path], lower: bool, spool: TempIdFile, tell: Callable[[str], None]) -> WordIds:
    """Number the words between white space, lower-cased if ``lower``.

    Raises:
        DataError: A byte is not UTF-8, or a compressed file is damaged.
        UsageError: A file does not exist.
    """
    numberer = fastest(lower)
    release_library("libllvmlite")  # its compiler has done its work
    n_words = n_bytes = 0
    for path in sources:
        text = _Blocks(path, numberer)
        for numbers in text:
            spool.add(numbers)
            n_words += int(np.count_nonzero(numbers != LINE_END))
            tell(f"read {n_words:,} words")
        n_bytes += text.n_bytes
    same = numberer.settle()
    if same is not None:
        signs = np.array([TOO_LONG, LINE_END], np.int32)  # as numpy counts from the end
        table = np.concatenate([same, signs])
        spool.rewrite(lambda numbers: table[numbers])
    return WordIds(spool, numberer.counts, numberer.first, numberer.words, n_words, n_bytes)


class _Blocks:
    """The numbers of one file; iterate once."""

    def __init__(self, path: Path, numberer: Numberer) -> None:
        self.path = path
        self.n_bytes = 0
        self._numberer = numberer
        self._counts = LineCounts()  # of lines that ended
        self._begin = 0  # of the line that is being read

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        last = b"\n"
        with opened(self.path, self._counts) as stream:
            while block := stream.read(_BLOCK):
                if not self.n_bytes:
                    if is_utf16(block[:4096]):
                        raise DataError("this is not UTF-8", where=f"{self.path}:1", help=guess(block, "utf-16"))
                    block, self.n_bytes = block.removeprefix(_BOM), len(_BOM) * block.startswith(_BOM)
                    self._begin = self.n_bytes
                yield self._feed(block)
                last = block[-1:] or last
        # The last line ends with the file, and with it the last word.
        if last != b"\n":
            yield self._feed(b"\n")

    def _feed(self, block: bytes) -> NDArray[np.int32]:
        try:
            numbers = self._numberer.feed(block)
        except NoTextError as error:
            raise self._no_text(block, error) from error
        self._counts.n_lines += block.count(b"\n")
        if b"\n" in block:
            self._begin = self.n_bytes + block.rfind(b"\n") + 1
        self.n_bytes += len(block)
        return numbers

    def _no_text(self, block: bytes, error: NoTextError) -> DataError:
        """Return the error for a byte at ``error.at`` of the block; a negative place is in the block before."""
        before = block[: max(0, error.at)]
        line = self._counts.n_lines + before.count(b"\n") + 1
        begin = self.n_bytes + before.rfind(b"\n") + 1 if b"\n" in before else self._begin
        kind = guess(block, "utf-8") if line == 1 and not self.n_bytes else None
        return DataError(
            f"byte 0x{error.byte:02X} is not UTF-8 (byte {self.n_bytes + error.at - begin + 1} of the line)",
            where=f"{self.path}:{line}",
            help=kind or "convert the file to UTF-8 (iconv), or mend the line",
        )


def token_words_to_ids(
    sources: Sequence[Path], lower: bool, tokenizer: Tokenizer, spool: TempIdFile, tell: Callable[[str], None]
) -> WordIds:
    """Number the tokens of the lines by their ids; unknown text has no number.

    Raises:
        DataError: A byte is not UTF-8, or a line has no space in ``text.lines.MAX_BYTES`` bytes.
        UsageError: A file does not exist.
    """
    size = tokenizer.vocab_size
    counts, n_words, n_bytes = np.zeros(size, np.int64), 0, 0
    for path in sources:
        for some in _batches(read_chunks(path)):
            rows = tokenizer.encode([encodable(part, lower, tokenizer) for part in some])
            ends = [(LINE_END,) if part.ends else () for part in some]
            numbers = np.array([id for row, end in zip(rows, ends, strict=True) for id in (*row, *end)], np.int32)
            n_words += int(np.count_nonzero(numbers != LINE_END))
            n_bytes += sum(len(part.text) for part in some)
            numbers[numbers == UNK_ID] = TOO_LONG
            counts += np.bincount(numbers[numbers >= 0], minlength=size)
            spool.add(numbers)
            tell(f"read {n_words:,} tokens")
    return WordIds(spool, counts, np.arange(size), lambda ids: token_names(tokenizer, ids.tolist()), n_words, n_bytes)


def _batches(parts: Iterator[LineChunk]) -> Iterator[list[LineChunk]]:
    """Group chunks of lines for one call of the tokenizer."""
    some: list[LineChunk] = []
    size = 0
    for part in parts:
        some.append(part)
        size += len(part.text)
        if len(some) == _LINES or size > _SIGNS:
            yield some
            some, size = [], 0
    if some:
        yield some


def encodable(part: LineChunk, lower: bool, tokenizer: Tokenizer) -> str:
    """Return the text of a chunk, without the leading space where the vocabulary adds one itself."""
    text = part.text.lower() if lower else part.text
    if part.begins:
        return "" if part.ends and not text.strip() else text
    return text if tokenizer.config.kind in ("char", "gpt2") else text[1:]


def token_names(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return a unique name for each token: whole words as they are written."""
    names = tokenizer.tokens(ids)
    if tokenizer.config.kind == "word":
        return [name.removeprefix("▁") or name for name in names]
    if tokenizer.config.kind == "wordpiece":
        return [name if name.startswith("▁") else CONTINUED + name for name in names]
    return names
