"""Passages of SubRip (SRT) and WebVTT subtitles: one per cue, or per speaker."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attnkit.errors import DataError
from attnkit.formats.passages import Piece, Tag, make_pieces

_TIMES = re.compile(r"(?:\d+:)?\d+:\d+[.,]\d+\s*-->\s*(?:\d+:)?\d+:\d+[.,]\d+")
_BLANK = re.compile(r"(\r?\n[ \t]*(?:\r?\n[ \t]*)+)")
_TAG = r"</?[A-Za-z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}"
_MUSIC = r"[♩♪♫♬]+|(?<!\S)#+(?!\S)"  # a number sign alone is one of music, too
_MARKUP = re.compile(f"({_TAG}|{_MUSIC})")
_SPEAKER = re.compile(rf"(?:\s|{_TAG}|{_MUSIC})*[-–—]+\s*")
"""Beginning of a line of a speaker; tags and positions may be before the dash."""


def parse_subtitles(text: str) -> list[Piece]:
    """Return the pieces of a file of subtitles; numbers and times are copied.

    The lines of a cue are joined to a passage, and its translation is broken into the same number of lines. A dash
    at the beginning of a line begins a passage; it is copied with what is before it. Positions and music signs stay.

    Raises ``DataError`` if no line gives times.
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
        begins = [number for number, line in enumerate(said) if number == 0 or _SPEAKER.match(line)]
        for number, end in zip(begins, [*begins[1:], len(said)], strict=True):
            yield "\n" if number else ""
            own = "\n".join(said[number:end])
            prefix = match[0] if (match := _SPEAKER.match(own)) else ""
            yield prefix
            breaks = ["\r\n" if line.endswith("\r") else "\n" for line in said[number : end - 1]]
            at, breaks = first + number + prefix.count("\n"), breaks[prefix.count("\n") :]
            yield from make_pieces(_parts(own[len(prefix) :]), str, breaks=breaks, line=at)
        yield block[len(whole) :]


def _parts(text: str) -> Iterator[str | Tag]:
    for part in filter(None, _MARKUP.split(text)):
        if not _MARKUP.fullmatch(part):
            yield part
        elif part[0] != "<" or part[1].isdigit():
            yield Tag(part, "point")
        else:
            name = re.split(r"[\s.>]", part.lstrip("</"), maxsplit=1)[0].lower()
            yield Tag(part, "close" if part[1] == "/" else "open", name)
