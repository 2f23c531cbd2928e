"""Word vector tables, common to all formats, and detection of the format.

Letters: V words, D vector width.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError, UsageError

Floats = NDArray[np.float32]
MAX_WIDTH = 1 << 16  #: maximum numbers per row
MAX_WORD_BYTES = 1 << 12  #: maximum bytes per word
_BLOCK = 1 << 20  # numbers per block


class ScatteredRows:
    """Float32 rows at arbitrary offsets of a buffer, as in word2vec's binary format.

    Indexed like the rows of an array. Every access copies, since the rows in the buffer are not aligned.
    """

    def __init__(self, buffer: NDArray[np.uint8], starts: NDArray[np.int64], width: int) -> None:
        self.shape = (len(starts), width)
        self._starts = starts
        self._windows = np.lib.stride_tricks.sliding_window_view(buffer, 4 * width)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Floats:
        """Return a row (D,) for an integer, rows (n, D) for a slice or an integer array."""
        rows: Floats = self._windows[np.atleast_1d(self._starts[key])].view("<f4").astype(np.float32, copy=False)
        return rows[0] if isinstance(key, int | np.integer) else rows


# (V, D), in memory or memory-mapped; other number types become float32 when rows are read.
Rows: TypeAlias = "NDArray[Any] | ScatteredRows"
Unseen: TypeAlias = Callable[[str], "Floats | None"]  #: returns the vector of an out-of-vocabulary word, or None


@dataclass(frozen=True, eq=False)
class VectorTable:
    """Words and their vectors."""

    words: list[str]
    rows: Rows
    counts: NDArray[np.int64] | None = None  #: (V,) count of each word in the training text; None if unknown
    name: str = "vectors"  #: source of the vectors, for messages
    unseen: Unseen | None = None  #: set for runs with character n-grams
    warnings: tuple[str, ...] = ()  #: why newer checkpoints were skipped


def rows_at(rows: Rows, key: Any) -> Floats:
    """Return rows as float32, without a check for NaN or infinity."""
    with np.errstate(over="ignore"):
        found: Floats = np.asarray(rows[key], np.float32)
    return found


def finite_rows_at(rows: Rows, key: Any, name: str) -> Floats:
    """Return rows as float32; raise ``DataError`` for the first non-finite row."""
    found = rows_at(rows, key)
    if not np.isfinite(found).all():
        numbers = np.atleast_1d(np.arange(len(rows))[key])
        raise not_finite(name, int(numbers[np.argmin(np.isfinite(np.atleast_2d(found)).all(1))]))
    return found


def not_finite(name: str, number: int) -> DataError:
    """Return the error for the non-finite row ``number``, counted from 0."""
    what = "this vector contains a number that is not finite or overflows float32"
    help = "the file is damaged or its training diverged: download it again, or train with a lower learning rate"
    return DataError(what, where=f"{name}, vector {number + 1:,}", help=help)


def blocks(rows: Rows) -> Iterator[tuple[int, Floats]]:
    """Yield (first row number, rows) in blocks of a few megabytes."""
    return ((part.start, rows_at(rows, part)) for part in _parts(rows))


def finite_blocks(table: VectorTable) -> Iterator[tuple[int, Floats]]:
    """Yield the same as ``blocks``; raise ``DataError`` for a non-finite row."""
    return ((part.start, finite_rows_at(table.rows, part, table.name)) for part in _parts(table.rows))


def _parts(rows: Rows) -> Iterator[slice]:
    step = max(1, _BLOCK // max(1, rows.shape[1]))
    return (slice(start, start + step) for start in range(0, len(rows), step))


def check_no_blanks(words: Sequence[str], signs: str, fit: str) -> None:
    """Raise ``DataError`` with help ``fit`` for an empty word or one with ``signs``."""
    text = "\0".join(words)
    if not any(sign in text for sign in signs) and all(words):
        return
    word = next(word for word in words if not word or any(sign in word for sign in signs))
    what = f"the word {word[:40]!r} contains white space" if word else "there is an empty word"
    raise DataError(f"{what}, which this format cannot represent", help=fit)


def check_distinct(words: Sequence[str], name: str, first: int) -> None:
    """Raise ``DataError`` for a duplicate word; ``first`` is the first line number."""
    if len(set(words)) == len(words):
        return
    seen: dict[str, int] = {}
    for number, word in enumerate(words, first):
        if seen.setdefault(word, number) != number:
            what = f"duplicate word {word[:60]!r}: also on line {seen[word]:,}"
            raise DataError(what, where=f"{name}:{number}", help="remove one of the two lines")


def text_of(words: list[bytes], name: str, number: int) -> list[str]:
    """Decode words from row ``number`` on; raise ``DataError`` for invalid UTF-8."""
    try:
        found = b"\n".join(words).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        found = []
    if len(found) == len(words):
        return found
    for place, word in enumerate(words):
        try:
            word.decode("utf-8")
        except UnicodeDecodeError as error:
            what = f"byte 0x{word[error.start]:02X} in a word is not UTF-8"
            raise DataError(what, where=f"{name}:{number + place}", help="convert the words to UTF-8") from error
    return [word.decode("utf-8") for word in words]


Format = Literal["word2vec", "word2vec-binary", "glove", "fasttext", "safetensors", "npy", "projector"]
FORMATS: tuple[Format, ...] = get_args(Format)
ENDINGS: dict[str, Format] = {
    ".bin": "word2vec-binary",
    ".txt": "word2vec",
    ".w2v": "word2vec",
    ".vec": "fasttext",
    ".glove": "glove",
    ".safetensors": "safetensors",
    ".npy": "npy",
    ".tsv": "projector",
}  #: suffix of an output path -> format; a path without a suffix is a folder for the projector
_ARRAYS = (".safetensors", ".npy")  #: suffixes of formats with an unambiguous header
_AGAIN = "download or create the file again"
LOOKED_AT = 1 << 12  #: bytes at the start of a file that identify its format
_SIZES = re.compile(rb"[-+]?[0-9]+[ \t]+[-+]?[0-9]+[ \t\r]*")
_NUMBERS = re.compile(rb"[-+0-9.eEnNaAiIfF \t]*")


def header(line: bytes) -> tuple[int, int] | None:
    """Parse a header line into (V, D); return None if the line is a row."""
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() and len(field) < 16 for field in fields):
        return int(fields[0]), int(fields[1])
    return None


def format_of(path: Path) -> Format:
    """Return the format of an output path; raise ``UsageError`` if unknown."""
    found = ENDINGS.get(path.suffix.lower()) if path.suffix else "projector"
    if found is None:
        known = ", ".join(ENDINGS)
        raise UsageError(f"unknown suffix: {path}", help=f"use one of {known}, or give --to")
    return found


def recognised(begin: bytes, name: str) -> Format:
    """Detect a format by the first bytes of a file; raise ``DataError`` if unknown."""
    if not begin:
        raise DataError("this file is empty", where=name, help=_AGAIN)
    if begin.startswith(b"\x93NUMPY"):
        return "npy"
    if begin.startswith(b"\xba\x16\x4f\x2f"):
        help = "write its words as text: fasttext print-word-vectors, or use the .vec file in the same folder"
        raise DataError("this is a model in fastText's own format, not word vectors", where=name, help=help)
    if begin.startswith(b"\x80") and begin[1:2] in b"\x02\x03\x04\x05":
        help = "in gensim: model.wv.save_word2vec_format('vectors.bin', binary=True)"
        raise DataError("this is a pickle; pickles can execute code and are not read", where=name, help=help)
    if begin[8:9] == b"{" and b"\0" in begin[:8]:  # a binary header size, which never occurs in text
        return "safetensors"
    if (ending := Path(name).suffix.lower()) in _ARRAYS:
        what = f"not a valid {ending} file: invalid header"
        raise DataError(what, where=name, help=f"{_AGAIN}; if the format differs, change the suffix")
    first, _, rest = begin.partition(b"\n")
    if (sizes := header(first)) is None:
        # A row of a single number may look like this too, but then the next row does as well.
        if _SIZES.fullmatch(first) and len(rest.partition(b"\n")[0].split()) != 2:
            n_words, width = (text.decode() for text in first.split())
            what = f"invalid header: {n_words[:20]} words of width {width[:20]}"
            raise DataError(what, where=f"{name}:1", help=_AGAIN)
        if b"\0" in begin:
            raise DataError("this is not a file of word vectors", where=name, help=f"supported: {', '.join(FORMATS)}")
        return "glove"
    # As text, a number takes at least two bytes (digit and space), as binary four. fastText's .vec is word2vec's text.
    row = rest.lstrip(b"\n").partition(b" ")[2][: min(64, max(1, 2 * sizes[1] - 1))]
    return "word2vec" if _NUMBERS.fullmatch(row) else "word2vec-binary"
