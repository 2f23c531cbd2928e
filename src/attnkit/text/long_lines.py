"""Lines of any length, in parts that a vocabulary encodes as it would the whole line. Knows no vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from attnkit.errors import DataError
from attnkit.text.lines import BOM, MAX_BYTES, LineCounts, guess, is_utf16, look_ahead, opened, undecodable

PART = 1 << 18
"""Bytes from which on a line is cut."""


@dataclass(frozen=True)
class LineChunk:
    """A line, or some of one that is long: all but the first begin with the spaces before a word."""

    text: str
    begins: bool
    """It is the first of its line."""
    ends: bool
    """It is the last."""


def read_chunks(path: Path, most: int = PART) -> Iterator[LineChunk]:
    r"""Yield the lines of a file, without ``\n``, ``\r\n`` and a mark at the very start.

    Lines of more than ``most`` bytes are cut between words, so that memory does not grow with them.

    Raises:
        DataError: A byte is no UTF-8, or ``MAX_BYTES`` hold no space.
    """
    counts, held, done = LineCounts(), b"", 0  # held and done: what is read of a line and not given yet, and what is
    with opened(path, counts) as stream:
        ahead, rest = look_ahead(iter(partial(stream.readline, most), b""))
        if is_utf16(b"".join(ahead)[:4096]):
            raise DataError("this is no UTF-8", where=f"{path}:1", help=guess(ahead[0], "utf-16"))
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
