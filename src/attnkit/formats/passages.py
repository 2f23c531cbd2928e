"""Documents as passages of running text with inline tags, and copied markup."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, repeat
from typing import Literal, TypeAlias

TagKind: TypeAlias = Literal["open", "close", "point"]
MAX_DEPTH = 64  #: of nested elements in a passage; the tags of deeper ones are copied
SPACES = re.compile(r"[ \t\r\n\f]+")
_SPACE = re.compile(" ")
_END = re.compile(r"\r?\n")
_BREAKABLE = re.compile(r" (?![\s>#=|~:<+]|-(?!\w)|\d{1,9}[.)](?:\s|\Z)|\Z)")
"""A space before text that begins no list, heading or quote in Markdown."""


@dataclass(frozen=True)
class Value:
    """Text inside of a tag that readers see, such as the alternative text of an image."""

    begin: int  #: in the text of the tag
    end: int
    text: str  #: as it is read, entities decoded
    escape: Callable[[str], str] = field(repr=False, compare=False)  #: writes it inside of the tag


@dataclass(frozen=True)
class Tag:
    """Inline markup that is copied as it is written, but for its values."""

    text: str
    kind: TagKind  #: of an element, or ``point`` for what stands alone, such as an image
    name: str = ""  #: what an opening and a closing tag have in common
    needs_text: bool = False  #: whether the element means something else when it is empty, as ``**`` in Markdown
    values: tuple[Value, ...] = ()  #: what is translated, in order

    def pieces(self, line: int = 1) -> Iterator[Piece]:
        """Yield the tag as copied text, with a passage for each of its values."""
        place = 0
        for value in self.values:
            yield self.text[place : value.begin]
            yield from _trimmed([value.text], value.escape, line + self.text.count("\n", 0, value.begin))
            place = value.end
        yield self.text[place:]


@dataclass(frozen=True)
class Passage:
    """Text with balanced inline tags: every opening tag has its closing tag.

    Text has no markup: entities are decoded and runs of white space are one space. It begins and ends with text or with
    an element that is not around it all.
    """

    parts: list[str | Tag]
    escape: Callable[[str], str] = field(default=str, repr=False, compare=False)  #: writes text in the format
    breaks: tuple[str, ...] = ()
    """Its line breaks, each with the marks of the next line, as the ``\\n> `` of a quote; none: a single line."""
    line: int = field(default=1, compare=False)  #: of the document that it begins in, from 1

    @property
    def text(self) -> str:
        """Return the text without its tags."""
        return "".join(part for part in self.parts if isinstance(part, str))

    def render(self) -> str:
        """Return the passage as the format writes it."""
        written = [part.text if isinstance(part, Tag) else self.escape(part) for part in self.parts]
        if not self.breaks:
            return "".join(written)
        n_breaks = len(self.breaks) - _count_ends(part for part in self.parts if isinstance(part, Tag))
        # Lines of equal length, tags not counted, are broken at the nearest spaces.
        spaces, length = list[tuple[int, int, int]](), 0
        pattern = _BREAKABLE if any(map(str.strip, self.breaks)) else _SPACE
        for place, (part, text) in enumerate(zip(self.parts, written, strict=True)):
            if isinstance(part, Tag):
                continue
            spaces += [(length + match.start(), place, match.start()) for match in pattern.finditer(text)]
            if text[-1:] == " " and pattern is _BREAKABLE and _may_begin_line(self.parts[place + 1 : place + 2]):
                spaces.append((length + len(text) - 1, place, len(text) - 1))
            length += len(text)
        offsets, first = [offset for offset, _, _ in spaces], 0
        lines = [list(text) for text in written]
        for line in range(1, min(n_breaks, len(spaces)) + 1):
            wanted, end = length * line / (n_breaks + 1), max(first + 1, len(spaces) - n_breaks + line)
            number = bisect_left(offsets, wanted, first, end)  # the spaces behind ``end`` are for other breaks
            near = range(max(first, number - 1), min(end, number + 1))
            first = min(near, key=lambda k: abs(offsets[k] - wanted)) + 1
            _, place, at = spaces[first - 1]
            lines[place][at] = "\n"
        return _write_breaks("".join(map("".join, lines)), self.breaks)


Piece: TypeAlias = str | Passage
"""A part of a document: text that is copied, or a passage that is translated."""


def render(pieces: Iterable[Piece]) -> str:
    """Return the text of a document."""
    return "".join(piece if isinstance(piece, str) else piece.render() for piece in pieces)


def make_pieces(
    parts: Iterable[str | Tag], escape: Callable[[str], str], *, breaks: Sequence[str] = (), line: int = 1
) -> Iterator[Piece]:
    """Yield balanced passages of ``parts``, which begin in a line of the document.

    Tags without a partner are points, so that they do not cut sentences; those that are too deep are copied. With
    ``breaks``, which are those of the document, passages keep their number of lines.
    """
    pieces = _make_pieces(parts, escape, line)
    yield from _with_breaks(list(pieces), breaks, line) if breaks else pieces


def _make_pieces(parts: Iterable[str | Tag], escape: Callable[[str], str], line: int) -> Iterator[Piece]:
    run: list[str | Tag] = []
    for part, is_matched in _matched(list(parts)):
        if is_matched:
            run.append(part)
        else:
            yield from _trimmed(run, escape, line)
            line += _count_ends(run)
            yield from _copied([part], escape, line)
            line += _count_ends([part])
            run = []
    yield from _trimmed(run, escape, line)


def _may_begin_line(parts: Sequence[str | Tag]) -> bool:
    """Return whether a tag of Markdown, if there is one, begins no block."""
    return any(isinstance(tag, Tag) and tag.kind != "close" and tag.text[:1] not in ("<", "") for tag in parts)


def _with_breaks(pieces: Sequence[Piece], breaks: Sequence[str], first: int) -> Iterator[Piece]:
    """Yield pieces, from line ``first`` on, whose line breaks are ``breaks``."""
    end, ends = first + len(breaks), list[int]()
    for piece in reversed(pieces):
        ends.append(end)
        end = end - piece.count("\n") if isinstance(piece, str) else piece.line
    begin = first
    for piece, end in zip(pieces, reversed(ends), strict=True):
        own = tuple(breaks[begin - first : end - first])
        yield _write_breaks(piece, own) if isinstance(piece, str) else replace(piece, breaks=own)
        begin = end


def _write_breaks(text: str, breaks: Sequence[str]) -> str:
    """Return a text whose line breaks, in order, are ``breaks``."""
    first, *rest = _END.split(text)
    return first + "".join(chain.from_iterable(zip(chain(breaks, repeat("\n")), rest, strict=False)))


def _matched(parts: list[str | Tag]) -> Iterator[tuple[str | Tag, bool]]:
    """Yield each part, and whether it may be in a passage."""
    single, lone = set[int](), set[int]()
    pairs: list[tuple[int, int]] = []
    opened: list[tuple[int, str]] = []
    n_opened, n_deep = Counter[str](), Counter[str]()
    for place, part in enumerate(parts):
        if not isinstance(part, Tag) or part.kind == "point":
            continue
        if part.kind == "open" and len(opened) < MAX_DEPTH:
            opened.append((place, part.name))
            n_opened[part.name] += 1
        elif part.kind == "open" or n_deep[part.name]:
            n_deep[part.name] += 1 if part.kind == "open" else -1
            single.add(place)
        elif n_opened[part.name]:
            while opened[-1][1] != part.name:
                begin, name = opened.pop()
                lone.add(begin)
                n_opened[name] -= 1
            pairs.append((opened.pop()[0], place))
            n_opened[part.name] -= 1
        else:
            lone.add(place)
    lone.update(begin for begin, _ in opened)
    # An element around a copied tag would be cut in two, so its own tags are copied as well.
    before = list(accumulate((place in single for place in range(len(parts))), initial=0))
    single.update(chain.from_iterable(pair for pair in pairs if before[pair[1]] > before[pair[0]]))
    for place, part in enumerate(parts):
        yield replace(part, kind="point") if isinstance(part, Tag) and place in lone else part, place not in single


def _trimmed(parts: list[str | Tag], escape: Callable[[str], str], line: int) -> Iterator[Piece]:
    """Yield a passage with what is around its text, or only copied text."""
    if not Passage(parts).text.strip():
        yield from _copied(parts, escape, line)
        return
    begin, end = _core(parts)
    core = parts[begin:end]
    before, after = "", ""
    if isinstance(core[0], str):
        kept = core[0].lstrip()
        before, core[0] = core[0][: len(core[0]) - len(kept)], kept
    if isinstance(core[-1], str):
        kept = core[-1].rstrip()
        after, core[-1] = core[-1][len(kept) :], kept
    yield from _copied([*parts[:begin], before], escape, line)
    line += _count_ends([*parts[:begin], before])
    passage = [SPACES.sub(" ", part) if isinstance(part, str) else part for part in core]
    yield Passage(passage, escape, line=line)
    yield from _copied([after, *parts[end:]], escape, line + _count_ends(core))


def _copied(parts: Iterable[str | Tag], escape: Callable[[str], str], line: int) -> Iterator[Piece]:
    """Yield the pieces of what belongs to no passage."""
    for part in parts:
        if isinstance(part, Tag):
            yield from part.pieces(line)
        else:
            yield escape(part)
        line += _count_ends([part])


def _count_ends(parts: Iterable[str | Tag]) -> int:
    """Return the number of ends of lines."""
    return sum((part.text if isinstance(part, Tag) else part).count("\n") for part in parts)


def _core(parts: list[str | Tag]) -> tuple[int, int]:
    """Return the range within white space, points and elements around it all."""
    ends: dict[int, int] = {}  # of elements, by where they begin
    opened: list[int] = []
    for place, part in enumerate(parts):
        if isinstance(part, Tag) and part.kind == "open":
            opened.append(place)
        elif isinstance(part, Tag) and part.kind == "close":
            ends[opened.pop()] = place
    begin, end = 0, len(parts)
    while True:
        if _is_outside(parts[begin]):
            begin += 1
        elif _is_outside(parts[end - 1]):
            end -= 1
        elif ends.get(begin) == end - 1:
            begin, end = begin + 1, end - 1
        else:
            return begin, end


def _is_outside(part: str | Tag) -> bool:
    return part.kind == "point" if isinstance(part, Tag) else not part.strip()
