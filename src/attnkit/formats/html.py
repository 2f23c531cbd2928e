"""Passages of HTML and XHTML; all markup is copied byte by byte."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator
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
# Names of elements without an end, and of those whose end may be left out: in WebVTT, too, the voice ``v``.
_NO_END = re.compile(
    r"area|base|br|col|embed|hr|img|input|link|meta|param|source|track|wbr"
    r"|body|colgroup|d[dt]|head|html|li|optgroup|option|p|r[pt]|t[dhr]|tbody|tfoot|thead|v"
)
_COPIED = frozenset(["script", "style", "pre", "textarea", "svg", "math", "template", "object", "code", "kbd", "samp"])
"""Elements whose content is not running text."""
_COPIED_ATTRIBUTE = re.compile(
    r"translate\s*=\s*[\"']?no\b|class\s*=\s*(\"[^\"]*|'[^']*)\bnotranslate\b", re.IGNORECASE
)


_LESS, _GREATER = r"&(?:amp;)?(?:lt|#60|#x3c);", r"(?:&(?:amp;)?(?:gt|#62|#x3e);|>)"
_QUOTED = "|".join(
    rf"{mark}(?:(?!{mark}|{_LESS})[^<>])*{mark}" for mark in ('"', "'", "&(?:amp;)?quot;", "&apos;", "&#3[49];")
)
_VALUE = rf"\s*=\s*(?:{_QUOTED}|[^\s\"'<>&=]+)"
ESCAPED_TAG = re.compile(
    rf"(?i:{_LESS}(?P<end>/)?(?P<name>[A-Za-z][\w:.-]*)"
    rf"(?P<rest>(?:\s+[\w:.-]+{_VALUE}(?:\s+[\w:.-]+(?:{_VALUE})?)*)?\s*/?){_GREATER})"
)
"""A tag in text, written with entities; words behind the name are attributes if the first has a value."""
_BEGUN = re.compile(r"</?[A-Za-z][\w-]*")
_LANGUAGE = re.compile(r"((?<=\s)(?:xml:)?lang\s*=\s*[\"']?)([a-z]+(?:-\w+)*)", re.IGNORECASE)


def html_faults(text: str) -> list[tuple[int, str]]:
    """Return place and text of tags without a partner, and of beginnings of tags.

    >>> html_faults("<p>A <b>dog<p>and</i> a <a cat<br>")
    [(5, '<b>'), (14, '</i>'), (24, '<a')]
    """
    faults: list[tuple[int, str]] = []
    opened: list[tuple[str, int, str]] = []
    n_opened, end = Counter[str](), 0
    for match in [*MARKUP.finditer(text), None]:
        if match is not None and match.start() < end:
            continue
        between = _BEGUN.finditer(text, end, len(text) if match is None else match.start())
        faults += [(found.start(), found[0]) for found in between]
        if match is None:
            break
        end, name = match.end(), (match["name"] or "").lower()
        if not re.fullmatch(r"[\w.-]+", name) or (_NO_END.fullmatch(name) and not match["end"]):
            continue
        if name in _COPIED and not match["end"]:
            end = element_end(text, match) or end
        if match["end"] and n_opened[name]:
            while (last := opened.pop())[0] != name:
                n_opened[last[0]] -= 1
                faults.append(last[1:])
            n_opened[name] -= 1
        elif match["end"] and not _NO_END.fullmatch(name):
            faults.append((match.start(), match[0]))
        elif not match["end"] and end == match.end() and not match["rest"].endswith("/"):
            opened.append((name, match.start(), match[0]))
            n_opened[name] += 1
    return sorted([*faults, *(last[1:] for last in opened)])


def set_language(text: str, language: str) -> str:
    """Return a page whose language is another one.

    So are elements that repeat the language of the page, but those that are copied.

    >>> set_language('<html lang="en-GB"><p lang="en">A <i lang="fr">mot</i>', "de")
    '<html lang="de"><p lang="de">A <i lang="fr">mot</i>'
    """
    page = re.search(r"<html\b[^>]*", text, re.IGNORECASE)
    found = page and _LANGUAGE.search(page[0])
    if not found:
        return text
    own = _primary(found[2])

    def change(match: re.Match[str]) -> str:
        if not match["name"] or _COPIED_ATTRIBUTE.search(match["rest"]):
            return match[0]
        return _LANGUAGE.sub(lambda one: one[1] + (language if _primary(one[2]) == own else one[2]), match[0])

    return MARKUP.sub(change, text)


def _primary(language: str) -> str:
    return language.partition("-")[0].lower()


def escape(text: str) -> str:
    """Write text in HTML or XML: ``&``, ``<`` and ``>`` as entities."""
    return html.escape(text, quote=False)


def split_escaped(text: str, read: Callable[[str], str] = html.unescape) -> Iterator[str | Tag]:
    """Yield text as it is read, and the tags that are written with entities.

    >>> [part if isinstance(part, str) else part.text for part in split_escaped("1 &lt; 2 &lt;b&gt;")]
    ['1 < 2 ', '&lt;b&gt;']
    """
    place = 0
    for match in ESCAPED_TAG.finditer(text):
        yield read(text[place : match.start()])
        place = match.end()
        yield make_escaped_tag(match[0], match["name"], match["end"], match["rest"])
    yield read(text[place:])


def make_escaped_tag(text: str, name: str, end: str | None, rest: str) -> Tag:
    """Return the tag that ``ESCAPED_TAG`` matched; its partners are escaped, too."""
    tag = make_tag(text, name, end, rest)
    return replace(tag, name=f"&{tag.name}")


def parse_html(text: str, line: int = 1) -> list[Piece]:
    """Return the pieces of an HTML document, or of a fragment that begins in a line.

    Text of block elements is a passage, with inline elements as its tags, and so is every attribute that readers see.
    Scripts, styles, code, comments and elements with ``translate="no"`` or class ``notranslate`` are copied.
    """
    return list(_merge(_blocks(text, line)))


def _blocks(text: str, line: int) -> Iterator[Piece]:
    run: list[str | Tag] = []
    place, unclosed = 0, set[str]()
    begin = 0  # of the run, which ``line`` is that of
    while match := MARKUP.search(text, place):
        if match.start() > place:
            run += split_escaped(text[place : match.start()])
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
            yield from make_pieces(run, escape, line=line)
            line += text.count("\n", begin, match.start())
            yield from Tag(whole, "point", values=values).pieces(line)
            run, begin, line = [], place, line + whole.count("\n")
    yield from make_pieces([*run, *split_escaped(text[place:])], escape, line=line)


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
