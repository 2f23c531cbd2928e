"""Encode long lines: in parts that encode as the whole would, or only their first ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from attnkit.errors import DataError
from attnkit.text.lines import BOM, MAX_BYTES, LineCounts, guess, is_utf16, look_ahead, opened, undecodable
from attnkit.text.tokenizer import MAX_CHUNK, Tokenizer, symbol_pattern

PART = 1 << 18
"""Bytes from which on a line is cut."""


@dataclass(frozen=True)
class LineChunk:
    """A line, or some of one that is long: all but the first start with the spaces before a word."""

    text: str
    begins: bool
    """It is the first of its line."""
    ends: bool
    """It is the last."""


def read_chunks(path: Path, most: int = PART) -> Iterator[LineChunk]:
    r"""Yield the lines of a file, without ``\n``, ``\r\n`` and a mark at the very start.

    Lines of more than ``most`` bytes are cut between words, so that memory does not grow with them.

    Raises:
        DataError: A byte is not UTF-8, or ``MAX_BYTES`` hold no space.
    """
    counts, held, done = LineCounts(), b"", 0  # held and done: what is read of a line and not given yet, and what is
    with opened(path, counts) as stream:
        ahead, rest = look_ahead(iter(partial(stream.readline, most), b""))
        if is_utf16(b"".join(ahead)[:4096]):
            raise DataError("this is not UTF-8", where=f"{path}:1", help=guess(ahead[0], "utf-16"))
        for raw in chain(ahead, rest):
            ends, searched = raw.endswith(b"\n"), max(0, len(held) - 1)
            held += raw
            place = len(held) if ends else _between_words(held, searched)
            if place:
                yield LineChunk(_text(path, counts.n_lines + 1, held[:place], done), not done, ends)
            elif len(held) > MAX_BYTES:
                what = f"this line has more than {MAX_BYTES:,} bytes without a space"
                raise DataError(what, where=f"{path}:{counts.n_lines + 1}", help="put a line feed after each sentence")
            held, done = held[place:], 0 if ends else done + place
            counts.n_lines += ends
        if held:
            yield LineChunk(_text(path, counts.n_lines + 1, held, done), not done, True)


def _between_words(raw: bytes, searched: int) -> int:
    """Return where the last run of spaces between words begins, 0 if nowhere; none was before ``searched``."""
    end = len(raw.rstrip(b" \r"))  # what ends a line may follow
    while (end := raw.rfind(b" ", searched, end)) > 0:
        word = raw[:end].rstrip(b" ")
        last = word[-4:].decode("utf-8", "ignore")[-1:]
        if word and not last.isspace():  # other white space may belong to what follows
            return len(word)
    return 0


def _text(path: Path, line: int, raw: bytes, before: int) -> str:
    """Return what some bytes of a line say, which ``before`` others precede."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise undecodable(path, line, raw, error, before) from error
    if line == 1 and not before:
        text = text.removeprefix(BOM)
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


_PER_ID = 16
"""Characters for each id that is wanted, at first: of most texts more than enough."""
_FURTHER = 8
"""By how much the next beginning is longer, where one gave too few ids."""
_BORDERS = {"word": re.compile(" "), "gpt2": re.compile(r"(?<=\S) ")}
_BORDER = re.compile(r"(?<=[^ ]) ")
"""Where a chunk begins; of other kinds than these before a run of spaces."""


def encode_prefixes(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[list[int]]:
    """Return the ids of each text: all of them, or more than ``most`` from its beginning.

    Raises:
        DataError: what is encoded holds a lone surrogate.
    """
    found: list[list[int]] = [[] for _ in texts]
    length, left = _PER_ID * most, list(range(len(texts)))
    while left:
        given = [text_prefix(tokenizer, texts[i], length) for i in left]
        for i, ids in zip(left, tokenizer.encode(given), strict=True):
            found[i] = ids
        left = [i for i, text in zip(left, given, strict=True) if len(found[i]) <= most and len(text) < len(texts[i])]
        length *= _FURTHER
    return found


def text_prefix(tokenizer: Tokenizer, text: str, least: int) -> str:
    """Return the beginning of a text, of at least ``least`` characters, whose ids are the first ones of the whole text.

    It has not many more than ``MAX_CHUNK`` characters more; of a vocabulary of words it has all of its last word.
    """
    if len(text) <= least:
        return text
    border, whole_words = _BORDERS.get(tokenizer.config.kind, _BORDER), tokenizer.config.kind == "word"
    found = border.search(text, least) if whole_words else border.search(text, least, least + MAX_CHUNK)
    if found is not None:
        return text[: found.start()]
    if whole_words:
        return text
    begin = max((match.start() for match in border.finditer(text, 0, least)), default=0)
    lead = "" if begin else tokenizer.word_prefix  # which is the chunk's own space further on
    chunk = lead + text[begin : least + 2 * MAX_CHUNK]
    end = _end_of_piece(chunk, least - begin + len(lead), symbol_pattern(tokenizer.config.symbols))
    return text[: begin + end - len(lead)]


def _end_of_piece(chunk: str, least: int, symbols: re.Pattern[str] | None) -> int:
    """Return the first end of a piece from ``least`` on; symbols are pieces, and what is between them is cut anew."""
    begin, end = 0, len(chunk)
    for match in symbols.finditer(chunk) if symbols is not None else ():
        if match.start() >= least:
            end = match.start()
            break
        begin = match.end()
    if begin >= least:
        return begin
    n_pieces = -(-(least - begin) // MAX_CHUNK)
    return min(begin + n_pieces * MAX_CHUNK, end)


# Best places first: after a sentence, after a clause, between words. Each keeps its blanks on the left part.
_BREAKS = (r"(?<=[.!?…。！？])\s+|(?<=[。！？])", r"(?<=[,;:])\s+|(?<=[，；：、])", r"\s+")


def split_line(line: str, limit: int, count: Callable[[str], int]) -> list[str]:
    """Split ``line`` into parts of at most ``limit`` tokens each, as few as greedy packing gives.

    Args:
        line: Any text.
        limit: Most tokens a part may have (at least 1).
        count: Number of tokens of a text.

    Returns:
        At least one part. A part exceeds the limit only if a single character does.
    """
    if count(line) <= limit:
        return [line]
    for pattern in _BREAKS:
        pieces = [piece for piece in re.split(pattern, line) if piece and not piece.isspace()]
        if len(pieces) > 1:
            return [part for packed in _pack(pieces, limit, count) for part in split_line(packed, limit, count)]
    middle = len(line) // 2
    if middle == 0:
        return [line]
    return split_line(line[:middle], limit, count) + split_line(line[middle:], limit, count)


def split_ids(line: str, ids: list[int], limit: int, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the ids of a line in parts of at most ``limit``; a line that fits is one part."""
    return [ids] if len(ids) <= limit else tokenizer.encode(split_text(line, limit, tokenizer))


def split_text(line: str, limit: int, tokenizer: Tokenizer) -> list[str]:
    """Return the parts of at most ``limit`` tokens whose ids ``split_ids`` gives."""
    return split_line(line, limit, lambda text: len(tokenizer.encode([text])[0]))


def _pack(pieces: list[str], limit: int, count: Callable[[str], int]) -> list[str]:
    """Join neighbours with a space while they fit; at least two parts come back."""
    sizes = [count(piece) for piece in pieces]
    if sum(sizes) <= limit:  # joined they were too long, apart they are not: halve
        middle = len(pieces) // 2
        return [" ".join(pieces[:middle]), " ".join(pieces[middle:])]
    packed: list[str] = []
    filled = limit + 1
    for piece, size in zip(pieces, sizes, strict=True):
        if packed and filled + size <= limit:
            packed[-1] += " " + piece
            filled += size
        else:
            packed.append(piece)
            filled = size
    return packed
