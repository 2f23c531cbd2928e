"""Text files as word ids in a temporary file, read once, in blocks, whatever the length of a line."""

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
from attnkit.text.lines import LineCounts, guess, is_utf16, opened
from attnkit.text.long_lines import LineChunk, read_chunks
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_schema import CONTINUED

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
                    raise OSError(errno.EIO, "the temporary file is shorter than what was written")
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
    counts: NDArray[np.int64]  #: occurrences of each word
    first: NDArray[np.int64]  #: rank of each word by its first occurrence
    names: Callable[[NDArray[np.int64]], list[str]]  #: return the words of some numbers
    n_words: int = 0  #: all words, also those without a number: too long ones, and tokens for unknown text
    n_bytes: int = 0

    @property
    def n_long(self) -> int:
        """Words without a number."""
        return self.n_words - int(self.counts.sum())


def words_to_ids(sources: Sequence[Path], lower: bool, spool: TempIdFile, tell: Callable[[str], None]) -> WordIds:
    """Number the words between white space, lower-cased if ``lower``. Raises ``DataError`` unless it is UTF-8."""
    numberer = fastest(lower)
    release_library("libllvmlite")  # its compiler has done its work
    n_words = n_bytes = 0
    for path in sources:
        for n_read, numbers in _number_file(path, numberer):
            spool.add(numbers)
            n_bytes += n_read
            n_words += int(np.count_nonzero(numbers != LINE_END))
            tell(f"read {n_words:,} words")
    same = numberer.settle()
    if same is not None:
        signs = np.array([TOO_LONG, LINE_END], np.int32)  # as numpy counts from the end
        table = np.concatenate([same, signs])
        spool.rewrite(lambda numbers: table[numbers])
    return WordIds(spool, numberer.counts, numberer.first, numberer.words, n_words, n_bytes)


def _number_file(path: Path, numberer: Numberer) -> Iterator[tuple[int, Numbers]]:
    """Yield how many bytes of a file were read, and the numbers of their words."""
    counts = LineCounts()  # of lines that ended
    n_bytes = line_begin = 0  # line_begin: of the line that is being read
    last, ended = b"\n", False
    with opened(path, counts) as stream:
        while not ended:
            block = stream.read(_BLOCK)
            if not block:
                if last == b"\n":
                    return
                # The last line ends with the file, and with it the last word.
                block, ended = b"\n", True
            n_before = n_bytes
            if not n_bytes:
                if is_utf16(block[:4096]):
                    raise DataError("invalid UTF-8", where=f"{path}:1", help=guess(block, "utf-16"))
                n_bytes = line_begin = len(_BOM) * block.startswith(_BOM)
                block = block.removeprefix(_BOM)
            try:
                numbers = numberer.feed(block)
            except NoTextError as error:
                # A negative place is in the block before.
                before = block[: max(0, error.at)]
                line = counts.n_lines + before.count(b"\n") + 1
                begin = n_bytes + before.rfind(b"\n") + 1 if b"\n" in before else line_begin
                kind = guess(block, "utf-8") if line == 1 and not n_bytes else None
                what = f"byte 0x{error.byte:02X} is not UTF-8 (byte {n_bytes + error.at - begin + 1} of the line)"
                help = kind or "convert the file to UTF-8 (iconv), or fix the line"
                raise DataError(what, where=f"{path}:{line}", help=help) from error
            counts.n_lines += block.count(b"\n")
            if b"\n" in block:
                line_begin = n_bytes + block.rfind(b"\n") + 1
            n_bytes += len(block)
            last = block[-1:] or last
            yield n_bytes - n_before, numbers


def token_words_to_ids(
    sources: Sequence[Path], lower: bool, tokenizer: Tokenizer, spool: TempIdFile, tell: Callable[[str], None]
) -> WordIds:
    """Number the tokens of the lines by their ids; unknown text has no number.

    Raises:
        DataError: A byte is not UTF-8, or a line has no space in ``text.lines.MAX_BYTES`` bytes.
        UsageError: A file does not exist.
    """

    def names(ids: NDArray[np.int64]) -> list[str]:
        """Return a unique name for each token: whole words as they are written."""
        found = tokenizer.tokens(ids.tolist())
        if tokenizer.config.kind == "word":
            return [name.removeprefix("▁") or name for name in found]
        if tokenizer.config.kind == "wordpiece":
            return [name if name.startswith("▁") else CONTINUED + name for name in found]
        return found

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
    return WordIds(spool, counts, np.arange(size), names, n_words, n_bytes)


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
