"""Passages of SubRip (SRT) and WebVTT subtitles: one per cue, or per speaker."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attnkit.errors import DataError
from attnkit.formats.passages import Piece, Tag, make_pieces

_TIMES = re.compile(r"(?:\d+:)?\d+:\d+[.,]\d+\s*-->\s*(?:\d+:)?\d+:\d+[.,]\d+")
_BLANK = re.compile(r"(\r?\n[ \t]*(?:\r?\n[ \t]*)+)")
_MARKUP = re.compile(r"(</?[A-Za-z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\})")
_SPEAKER = re.compile(r"[-–—]\s*")


def parse_subtitles(text: str) -> list[Piece]:
    """Return the pieces of a file of subtitles; numbers and times are copied.

    The lines of a cue are joined to a passage, and its translation is broken into the same number of lines. Each line
    of a dialogue, marked by dashes, is a passage. Raises ``DataError`` if no line gives times.
    """
    if not _TIMES.search(text):
        raise DataError("this file has no times of subtitles", help="an SRT file has 00:00:01,000 --> 00:00:02,500")
    return list(_cues(text))


def _cues(text: str) -> Iterator[Piece]:
    following = 1  # line
    for block in _BLANK.split(text):
        first, following = following, following + block.count("\n")
        whole = block.rstrip("\r\n")
        lines = whole.split("\n")
        place = next((i for i, line in enumerate(lines[:3]) if _TIMES.match(line.strip())), None)
        if place is None or place + 1 == len(lines):
            yield block
            continue
        yield "\n".join(lines[: place + 1]) + "\n"
        said, first = lines[place + 1 :], first + place + 1
        if any(_SPEAKER.match(line.strip()) for line in said[1:]):
            for number, line in enumerate(said):
                yield "\n" if number else ""
                prefix = _SPEAKER.match(line)
                yield prefix[0] if prefix else ""
                yield from make_pieces(_parts(line[prefix.end() if prefix else 0 :]), str, line=first + number)
        else:
            yield from make_pieces(_parts("\n".join(said)), str, breaks=["\n"] * (len(said) - 1), line=first)
        yield block[len(whole) :]


def _parts(text: str) -> Iterator[str | Tag]:
    for part in filter(None, _MARKUP.split(text)):
        if not _MARKUP.fullmatch(part):
            yield part
        elif part[0] == "{" or part[1].isdigit():
            yield Tag(part, "point")
        else:
            name = re.split(r"[\s.>]", part.lstrip("</"), maxsplit=1)[0].lower()
            yield Tag(part, "close" if part[1] == "/" else "open", name)
