"""Passages of HTML and XHTML; all markup is copied byte by byte."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import replace

from attnkit.formats.attributes import html_values
from attnkit.formats.passages import Passage, Piece, Tag, make_pieces

MARKUP = re.compile(
    r"<!--.*?(?:-->|\Z)|<!\[CDATA\[.*?(?:\]\]>|\Z)|<\?.*?(?:\?>|\Z)|<![^<>]*>"
    r"|<(?P<end>/)?(?P<name>[A-Za-z][^\s/<>\"']*)(?P<rest>(?:[^<>\"']|\"[^\"]*\"|'[^']*')*)>",
    re.DOTALL,
)
"""Comments, declarations, instructions and tags of HTML and XML."""

INLINE = frozenset[str]().union(
    ["a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img"],
    ["input", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup"],
    ["time", "tt", "u", "var", "wbr"],
)
"""Elements inside of text, which do not end a block."""
_VOID = frozenset(["br", "hr", "img", "input", "wbr"])
_COPIED = frozenset(["script", "style", "pre", "textarea", "svg", "math", "template", "object", "code", "kbd", "samp"])
"""Elements whose content is not running text."""
_COPIED_ATTRIBUTE = re.compile(
    r"translate\s*=\s*[\"']?no\b|class\s*=\s*(\"[^\"]*|'[^']*)\bnotranslate\b", re.IGNORECASE
)


def escape(text: str) -> str:
    """Write text in HTML or XML: ``&``, ``<`` and ``>`` as entities."""
    return html.escape(text, quote=False)


def parse_html(text: str) -> list[Piece]:
    """Return the pieces of an HTML document or fragment.

    Text of block elements is a passage, with inline elements as its tags, and so is every attribute that readers see.
    Scripts, styles, code, comments and elements with ``translate="no"`` or class ``notranslate`` are copied.
    """
    return list(_merge(_blocks(text)))


def _blocks(text: str) -> Iterator[Piece]:
    run: list[str | Tag] = []
    place, unclosed = 0, set[str]()
    while match := MARKUP.search(text, place):
        if match.start() > place:
            run.append(html.unescape(text[place : match.start()]))
        place, name = match.end(), (match["name"] or "").lower()
        is_copied = name in _COPIED or _COPIED_ATTRIBUTE.search(match["rest"] or "")
        if name and not match["end"] and name not in unclosed and is_copied:
            place = element_end(text, match)
            if not place:
                place = match.end()
                unclosed.add(name)  # searched once: its tags are tags like any others
        whole = text[match.start() : place]
        # Of an element that is copied, its attributes are too.
        values = () if not name or match["end"] or place > match.end() else html_values(whole, name)
        if name in INLINE or whole.startswith("<!--"):
            is_whole = place > match.end()
            tag = Tag(whole, "point") if is_whole else make_tag(whole, name, match["end"], match["rest"])
            run.append(replace(tag, values=values))
        else:
            yield from make_pieces(run, escape)
            yield from Tag(whole, "point", values=values).pieces()
            run = []
    yield from make_pieces([*run, html.unescape(text[place:])], escape)


def make_tag(text: str, name: str | None, end: str | None, rest: str | None) -> Tag:
    """Return the tag that ``MARKUP`` matched; what has no content is a point."""
    name = (name or "").lower()
    alone = not name or name in _VOID or (rest or "").endswith("/")
    return Tag(text, "point" if alone else "close" if end else "open", name)


def element_end(text: str, begin: re.Match[str]) -> int:
    """Return the end of the element that a tag opens; 0 if it is never closed."""
    name = begin["name"]
    if name.lower() in _VOID or begin["rest"].endswith("/"):
        return begin.end()
    depth = 0
    for match in re.compile(rf"<(/?){re.escape(name)}\b[^<>]*>", re.IGNORECASE).finditer(text, begin.start()):
        depth += -1 if match[1] else not match[0].endswith("/>")
        if not depth:
            return match.end()
    return 0


def _merge(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Join neighbouring pieces of copied text."""
    copied = ""
    for piece in pieces:
        if isinstance(piece, Passage):
            yield copied
            copied = ""
            yield piece
        else:
            copied += piece
    yield copied
