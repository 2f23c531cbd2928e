"""Conversion of text files to word ids in a temporary file, in one pass."""

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError
from attnkit.kernels.jit import release_compiler
from attnkit.kernels.words import LINE_END, TOO_LONG, NoTextError, Numberer, Numbers, fastest
from attnkit.protocols import UNK_ID
from attnkit.text.files import LineCounts, guess
from attnkit.text.lines import is_utf16, opened
from attnkit.text.long_lines import LineChunk, read_chunks
from attnkit.text.punctuation import separate_marks
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary_schema import CONTINUED

_AT_ONCE = 1 << 18  # ids per block


class TempIdFile:
    """Temporary file of word ids that may exceed memory; ``LINE_END`` ends a line."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._size = 0

    def __len__(self) -> int:
        return self._size // 4

    def add(self, numbers: Numbers) -> None:
        """Append ids."""
        self._size = self._put(self._size, numbers)

    def __iter__(self) -> Iterator[Numbers]:
        """Yield all ids, block by block."""
        at = 0
        while at < self._size:
            numbers = np.empty(min(_AT_ONCE, (self._size - at) // 4), np.int32)
            view = numbers.data.cast("B")
            self._stream.seek(at)
            at += len(view)
            while view:
                if not (n_read := self._stream.readinto(view)):
                    raise OSError(errno.EIO, "the temporary file is shorter than expected")
                view = view[n_read:]
            yield numbers

    def rewrite(self, change: Callable[[Numbers], Numbers]) -> None:
        """Replace blocks by ``change(block)``; output may never exceed the input so far."""
        end = 0
        for block in self:
            end = self._put(end, change(block))
        self._size = end

    def _put(self, at: int, numbers: Numbers) -> int:
        """Write ids at a byte offset and return the offset of their end."""
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
    """A text as word ids, with the counts and names of its distinct words."""

    spool: TempIdFile
    counts: NDArray[np.int64]  #: number of occurrences of each word
    first: NDArray[np.int64]  #: rank of each word by first occurrence
    names: Callable[[NDArray[np.int64]], list[str]]  #: maps ids to words
    n_words: int = 0  #: all words, including those without an id: overlong words and unknown tokens
    n_bytes: int = 0

    @property
    def n_long(self) -> int:
        """Number of words without an id."""
        return self.n_words - int(self.counts.sum())


def words_to_ids(
    sources: Sequence[Path],
    lower: bool,
    spool: TempIdFile,
    tell: Callable[[str], None],
    *,
    separate_punctuation: bool = False,
) -> WordIds:
    """Read words as ids; raise ``DataError`` if the text is not UTF-8.

    Words are separated by white space; ``separate_punctuation`` makes marks at their ends words of their own.
    """
    if separate_punctuation:
        return _separated_words_to_ids(sources, lower, spool, tell)
    numberer = fastest(lower)
    release_compiler()  # no longer needed once the code is compiled
    n_words = n_bytes = 0
    for path in sources:
        for n_read, numbers in _number_file(path, numberer):
            spool.add(numbers)
            n_bytes += n_read
            n_words += int(np.count_nonzero(numbers != LINE_END))
            tell(f"read {n_words:,} words")
    same = numberer.settle()
    if same is not None:
        signs = np.array([TOO_LONG, LINE_END], np.int32)  # at indices -2 and -1, as TOO_LONG and LINE_END
        table = np.concatenate([same, signs])
        spool.rewrite(lambda numbers: table[numbers])
    return WordIds(spool, numberer.counts, numberer.first, numberer.words, n_words, n_bytes)


class WordParts:
    """Parts of the words of a numberer: each without marks, and its marks."""

    def __init__(self, lower: bool) -> None:
        self._lower = lower
        self.names: list[str] = []  #: of each part
        self._numbers: dict[str, int] = {}
        self._parts = np.array([TOO_LONG, LINE_END], np.int32)
        """Parts of all words, one after the other; the first two are of words without a number."""
        self._begins: NDArray[np.int64] = np.array([0, 1])
        self._sizes: NDArray[np.int64] = np.array([1, 1])
        self._n_known = self._n_parts = 2

    def add(self, words: Sequence[str]) -> None:
        """Add the next words in the order of their numbers."""
        rows = [[self._number(part) for part in separate_marks(word)] for word in words]
        sizes = np.array([len(row) for row in rows], np.int64)
        parts = np.array([number for row in rows for number in row], np.int32)
        begins = self._n_parts + np.cumsum(sizes) - sizes
        self._parts = _put(self._parts, self._n_parts, parts)
        self._begins, self._sizes = _put(self._begins, self._n_known, begins), _put(self._sizes, self._n_known, sizes)
        self._n_parts, self._n_known = self._n_parts + len(parts), self._n_known + len(words)

    def expand(self, numbers: Numbers) -> Numbers:
        """Return the parts of words; signs such as ``LINE_END`` stay."""
        known = numbers.astype(np.int64) + 2  # TOO_LONG and LINE_END are -2 and -1
        sizes = self._sizes[known]
        offsets = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        parts: Numbers = self._parts[np.repeat(self._begins[known], sizes) + offsets]
        return parts

    def counts(self, of_words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the count of each part, given those of the words."""
        sizes = self._sizes[2 : self._n_known]
        counts = np.zeros(len(self.names), np.int64)
        np.add.at(counts, self._parts[2 : self._n_parts], np.repeat(of_words, sizes))
        return counts

    def _number(self, part: str) -> int:
        name = part.lower() if self._lower else part
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
        return number


def _put(array: Any, at: int, values: Any) -> Any:
    """Return an array with values at a place, twice as long if they do not fit."""
    if at + len(values) > len(array):
        array = np.concatenate([array, np.zeros(max(len(array), len(values)), array.dtype)])
    array[at : at + len(values)] = values
    return array


def _separated_words_to_ids(
    sources: Sequence[Path], lower: bool, spool: TempIdFile, tell: Callable[[str], None]
) -> WordIds:
    """Read words and marks as ids; separate each distinct word once."""
    numberer, parts = fastest(), WordParts(lower)
    release_compiler()  # no longer needed once the code is compiled
    n_known = n_words = n_bytes = 0
    for path in sources:
        for n_read, numbers in _number_file(path, numberer):
            n_now = len(numberer)
            parts.add(numberer.words(np.arange(n_known, n_now)))
            n_known = n_now
            expanded = parts.expand(numbers)
            spool.add(expanded)
            n_bytes += n_read
            n_words += int(np.count_nonzero(expanded != LINE_END))
            tell(f"read {n_words:,} words")

    def names(ids: NDArray[np.int64]) -> list[str]:
        return [parts.names[id] for id in ids.tolist()]

    counts = parts.counts(numberer.counts)
    return WordIds(spool, counts, np.arange(len(counts)), names, n_words, n_bytes)


def _number_file(path: Path, numberer: Numberer) -> Iterator[tuple[int, Numbers]]:
    """Yield the number of bytes read and their word ids, block by block."""
    counts = LineCounts()  # of complete lines
    n_bytes = line_begin = 0  # line_begin: byte offset of the current line
    last, ended = b"\n", False
    with opened(path, counts) as stream:
        while not ended:
            block = stream.read(_BLOCK)
            if not block:
                if last == b"\n":
                    return
                # The end of the file also ends the last line and its last word.
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
                # A negative offset lies in the previous block.
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
    """Encode text with a tokenizer; unknown tokens become ``TOO_LONG``.

    Raises:
        DataError: A byte is not UTF-8, or ``text.lines.MAX_BYTES`` bytes of a line contain no space.
        UsageError: A file does not exist.
    """

    def names(ids: NDArray[np.int64]) -> list[str]:
        """Return a unique name for each token; whole words are named as spelled."""
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
    """Group chunks of lines into batches for the tokenizer."""
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
    """Return the text to encode, without a leading space that the tokenizer adds."""
    text = part.text.lower() if lower else part.text
    if part.begins:
        return "" if part.ends and not text.strip() else text
    return text if tokenizer.config.kind in ("char", "gpt2", "llama3") else text[1:]
