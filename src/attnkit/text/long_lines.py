"""Long lines: reading them in chunks, and encoding only their first ids."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from attnkit.errors import DataError
from attnkit.text.config import symbol_pattern
from attnkit.text.files import BOM, MAX_BYTES, LineCounts, guess, undecodable
from attnkit.text.lines import detect_utf16, opened
from attnkit.text.tokenizer import MAX_CHUNK, Tokenizer

PART = 1 << 18  #: length in bytes above which a line is split


@dataclass(frozen=True)
class LineChunk:
    """A line, or a part of a long one; every part but the first starts with a space."""

    text: str
    begins: bool  #: whether this is the first part of its line
    ends: bool  #: whether this is the last part of its line


def read_chunks(path: Path, most: int = PART) -> Iterator[LineChunk]:
    r"""Yield the lines of a file in chunks, without ``\n``, ``\r\n`` and initial BOM.

    Lines of more than ``most`` bytes are split between words to bound memory. Raises ``DataError`` for invalid UTF-8
    and for more than ``MAX_BYTES`` bytes without a space.
    """
    counts, pending, n_done = LineCounts(), b"", 0  # bytes of the line not yet yielded, and number of bytes yielded

    def chunk(raw: bytes, ends: bool) -> LineChunk:
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise undecodable(path, counts.n_lines + 1, raw, error, n_done) from error
        if not counts.n_lines and not n_done:
            text = text.removeprefix(BOM)
        text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
        return LineChunk(text, not n_done, ends)

    with opened(path, counts) as stream:
        utf16, pieces = detect_utf16(iter(partial(stream.readline, most), b""))
        for raw in pieces:
            if utf16:
                raise DataError("invalid UTF-8", where=f"{path}:1", help=guess(raw, "utf-16"))
            ends, n_searched = raw.endswith(b"\n"), max(0, len(pending) - 1)
            pending += raw
            n_taken = len(pending) if ends else _last_gap(pending, n_searched)
            if n_taken:
                yield chunk(pending[:n_taken], ends)
            elif len(pending) > MAX_BYTES:
                what = f"this line has more than {MAX_BYTES:,} bytes without a space"
                raise DataError(what, where=f"{path}:{counts.n_lines + 1}", help="put each sentence on a separate line")
            pending, n_done = pending[n_taken:], 0 if ends else n_done + n_taken
            counts.n_lines += ends
        if pending:
            yield chunk(pending, True)


def _last_gap(raw: bytes, n_searched: int) -> int:
    """Return the start of the last run of spaces after ``n_searched``, 0 if not found."""
    end = len(raw.rstrip(b" \r"))  # the line may end after these bytes
    while (end := raw.rfind(b" ", n_searched, end)) > 0:
        word = raw[:end].rstrip(b" ")
        last = word[-4:].decode("utf-8", "ignore")[-1:]
        if word and not last.isspace():  # other white space may belong to the next word
            return len(word)
    return 0


_PER_ID = 16  #: characters per id that are encoded at first; enough for most texts
_FURTHER = 8  #: factor by which a prefix with too few ids is lengthened
_AFTER_WORD = re.compile(r"(?<=\S) ")
_BORDERS = {"word": re.compile(" "), "gpt2": _AFTER_WORD, "llama3": _AFTER_WORD}
_BORDER = re.compile(r"(?<=[^ ]) ")  #: start of a chunk in all other kinds of vocabularies


def encode_prefixes(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[list[int]]:
    """Return all ids of each text, or a prefix of more than ``most`` ids."""
    encoded: list[list[int]] = [[] for _ in texts]
    length, left = _PER_ID * most, list(range(len(texts)))
    while left:
        prefixes = [text_prefix(tokenizer, texts[i], length) for i in left]
        for i, ids in zip(left, tokenizer.encode(prefixes), strict=True):
            encoded[i] = ids
        lengths = zip(left, map(len, prefixes), strict=True)
        left = [i for i, n_read in lengths if len(encoded[i]) <= most and n_read < len(texts[i])]
        length *= _FURTHER
    return encoded


def text_prefix(tokenizer: Tokenizer, text: str, least: int) -> str:
    """Return a prefix of a text whose ids are a prefix of the ids of the text.

    It has at least ``least`` and about ``least + MAX_CHUNK`` characters at most; for kind ``word``, it ends a word.
    """
    if len(text) <= least:
        return text
    border, whole_words = _BORDERS.get(tokenizer.config.kind, _BORDER), tokenizer.config.kind == "word"
    next_border = border.search(text, least) if whole_words else border.search(text, least, least + MAX_CHUNK)
    if next_border is not None or whole_words:
        return text[: next_border.start()] if next_border else text
    begin = max((match.start() for match in border.finditer(text, 0, least)), default=0)
    lead = "" if begin else tokenizer.word_prefix  # later chunks contain their space
    chunk, least = lead + text[begin : least + 2 * MAX_CHUNK], least - begin + len(lead)
    # A long chunk is encoded in pieces: symbols are pieces, and the text between two symbols is split separately.
    piece_begin, piece_end = 0, len(chunk)
    symbols = symbol_pattern(tokenizer.config.symbols)
    for match in symbols.finditer(chunk) if symbols is not None else ():
        if match.start() >= least:
            piece_end = match.start()
            break
        piece_begin = match.end()
    if piece_begin < least:
        n_pieces = -(-(least - piece_begin) // MAX_CHUNK)
        piece_begin = min(piece_begin + n_pieces * MAX_CHUNK, piece_end)
    return text[: begin + piece_begin - len(lead)]
