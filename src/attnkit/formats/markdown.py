"""Markdown (CommonMark, with tables, footnotes and front matter) as passages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, NamedTuple, TypeAlias

from attnkit.formats.attributes import html_values, markdown_values
from attnkit.formats.html import ESCAPED_TAG, INLINE, MARKUP, make_escaped_tag, make_tag, parse_html
from attnkit.formats.passages import Piece, Tag, make_pieces

_FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*\Z)|~{3,})")
_MARKER = r"(?:[-*+]|\d{1,9}[.)])"
_TASK = rf"{_MARKER}[ \t]+\[[ xX]\]"
_PREFIX = re.compile(rf"[ \t]*(?:(?:>|(?:{_TASK}|{_MARKER}|#{{1,6}}|\[\^[^\]\s]+\]:)(?=[ \t]))[ \t]*)*")
_EMPTY = re.compile(rf"(?:[ \t>]|(?:{_TASK}|{_MARKER}|#{{1,6}}|\[\^[^\]\s]+\]:)(?=[ \t\r]|\Z))*\r?")
"""A line without text: a blank one, also in a quote; an empty item or heading."""
_QUOTE = re.compile(r" *> ?")
_ITEM = re.compile(rf" *{_MARKER} (?: {{0,3}}(?=[^ ]))?")
_INDENTED = re.compile(r"(?:\A|[-*+.)>] ) {4,}\Z")
_QUOTES = re.compile(r"[ \t]*(?:>[ \t]*)*")
_RULE = re.compile(r"[ \t>]*(?:(?:-[ \t]*){2,}|(?:=[ \t]*)+|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})\r?")
_BEGINNING = re.compile(r"\A(?=[-+](?: |\Z)|-[- ]+\Z|>|#{1,6}(?: |\Z)|~{3}|\d{1,9}[.)](?: |\Z))(\d*)(.)")
"""Text that would begin a quote, item, heading, rule or code."""
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\r?")
_DEFINITION = re.compile(r" {0,3}\[[^\]\^][^\]]*\]:[ \t]*\S")
_HTML_BLOCK = re.compile(r" {0,3}<(?:!|\?|/?[A-Za-z][\w-]*[\s/>])")
_HTML = re.sub("[?]P<(end|name|rest)>", r"?P<html_\1>", MARKUP.pattern)
_ENTITIES = re.sub("[?]P<(end|name|rest)>", r"?P<entities_\1>", ESCAPED_TAG.pattern)
_INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<code>(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<math>\$\$[^$]+\$\$|\$[^\s$](?:[^$\n]*[^\s$])?\$(?!\d))"
    r"|(?P<auto><(?:[A-Za-z][A-Za-z0-9+.-]*:[^\s<>]*|[\w.+-]+@[\w.-]+)>)"
    rf"|(?P<html>{_HTML})|(?P<entities>{_ENTITIES})"
    r"|(?P<footnote>\[\^[^\]\s]+\])"
    r"|(?P<image>!\[[^\]\[]*\](?:\([^()\s]*(?:[ \t]+\"[^\"]*\")?\)|\[[^\]]*\]))"
    r"|(?P<close>\](?:\((?:<[^<>]*>|[^()\s]*(?:\([^()]*\)[^()\s]*)*)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\)|\[[^\]\[]*\]))"
    r"|(?P<bracket>\[)"
    r"|(?P<marks>\*{1,3}|_{1,3}|~~)",
    re.DOTALL,
)


def escape(text: str) -> str:
    """Write text in Markdown: characters that would be markup get a backslash."""
    return _BEGINNING.sub(r"\1\\\2", _escape_inside(text))


def _escape_inside(text: str) -> str:
    text = re.sub(r"([\\`*\[\]<])", r"\\\1", text)
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)


def parse_markdown(text: str) -> list[Piece]:
    """Return the pieces of a Markdown document.

    A paragraph, heading, list item or table cell is a passage, with emphasis and links as its tags; its lines are
    joined. So is the alternative text of an image, and a title. Code, formulas, addresses and front matter are copied;
    blocks of HTML are read as HTML.
    """
    return list(_blocks(text.split("\n")))


def _blocks(lines: list[str]) -> Iterator[Piece]:
    """Yield the pieces of all blocks; the line ends between them are copied."""
    place = _front_matter_end(lines)
    yield "".join(f"{line}\n" for line in lines[:place])
    paragraph: list[str] = []
    containers: _Containers | None = None  # of the paragraph
    first = 1  # line of the paragraph
    while place < len(lines):
        kind, end = _find_block(lines, place, containers)
        block = lines[place:end]
        if kind == "text":
            paragraph += block
        else:
            if paragraph:
                yield from _paragraph(paragraph, containers or _Containers([]), first)
                yield "\n"
            paragraph, first = block if kind == "beginning" else [], place + 1
            containers = _find_containers(lines[place]) if paragraph else None
            if kind == "heading":
                yield from _paragraph(block, _Containers([]), first)
            elif kind == "html":
                yield from parse_html("\n".join(block), first)
            elif kind == "table":
                yield from _table(block, first)
            elif kind == "copied":
                yield "\n".join(block)
            if kind != "beginning" and end < len(lines):
                yield "\n"
        place = end
    yield from _paragraph(paragraph, containers or _Containers([]), first)


def _front_matter_end(lines: list[str]) -> int:
    """Return the number of lines of the front matter, 0 without."""
    if lines[0].rstrip() != "---":
        return 0
    return next((i + 1 for i in range(1, len(lines) - 1) if lines[i].rstrip() in ("---", "...")), 0)


_Kind: TypeAlias = Literal["text", "beginning", "heading", "html", "table", "copied"]
"""Of a block; ``text`` continues a paragraph or item, which ``beginning`` begins."""


def _find_block(lines: list[str], place: int, containers: _Containers | None) -> tuple[_Kind, int]:
    """Return the kind of the block at ``place`` and where it ends.

    ``containers`` are those of the paragraph before it, None if there is none.
    """
    line, end = lines[place], place + 1
    prefix, quotes = _match_prefix(_PREFIX, line), _match_prefix(_QUOTES, line)
    if fence := _FENCE.match(line, len(prefix)):
        return "copied", _fence_end(lines, place, fence[1])
    if containers is None and _HTML_BLOCK.match(line) and not _begins_inline(line):
        blank = (i for i in range(end, len(lines)) if not lines[i].strip())
        return "html", next(blank, len(lines))
    if "|" in line and end < len(lines) and _is_row(lines[end], own := _find_containers(line).inner(), _TABLE_RULE):
        return "table", next((i for i in range(end, len(lines)) if not _is_row(lines[i], own)), len(lines))
    if _DEFINITION.match(line):
        return "copied", end
    # In doubt a line begins a block, which is copied with its marks; only lines of a paragraph are joined.
    is_text = not prefix.strip(" >\t") and not line.startswith("|", len(prefix))
    continues = containers is not None and is_text and containers.match(line)[2]
    is_code = _INDENTED.search(prefix.expandtabs(4)) and (containers is None or prefix.strip()) and not continues
    if is_code or _EMPTY.fullmatch(line) or _RULE.fullmatch(line) or _RULE.fullmatch(line, len(prefix)):
        return "copied", end
    if "#" in prefix or line[len(quotes) :].startswith("#"):
        return "heading", end
    return ("text" if continues else "beginning"), end


def _match_prefix(pattern: re.Pattern[str], line: str) -> str:
    found = pattern.match(line)
    return found[0] if found else ""


def _fence_end(lines: list[str], place: int, fence: str) -> int:
    """Return the end of a block of code, at the latest that of its quote or item."""
    containers = _find_containers(lines[place]).inner()
    for i in range(place + 1, len(lines)):
        n_matched, n_quotes, _ = containers.match(lines[i])
        missing = containers.widths[n_matched:]
        if missing and (lines[i].strip() or 0 in missing):
            return i
        rest = lines[i].strip(" \t\r" + ">" * bool(n_quotes))
        if rest.startswith(fence) and not rest.strip(fence[0]):
            return i + 1
    return len(lines)


def _is_row(line: str, containers: _Containers, pattern: re.Pattern[str] | None = None) -> bool:
    """Return whether a line is a row of a table in the same containers."""
    n_matched, n_quotes, _ = containers.match(line)
    prefix = _match_prefix(_PREFIX, line)
    if n_matched < len(containers.widths) or re.sub(r"\s", "", prefix) != ">" * n_quotes:
        return False
    return "|" in line and (pattern is None or pattern.fullmatch(line, len(prefix)) is not None)


class _Containers(NamedTuple):
    """What the text of a line is in: quotes, items, an indent."""

    widths: list[int]  #: 0 for a quote, the columns of an item or indent
    may_be_code: bool = False  #: four columns too many: code unless an item is around them
    is_indented: bool = False  #: whether the first is an indent

    def inner(self) -> _Containers:
        """Return the containers without an indent, which code and tables need not keep."""
        return _Containers(self.widths[1:]) if self.is_indented else self

    def match(self, line: str) -> tuple[int, int, bool]:
        """Return how many containers a line is in, how many of them are quotes.

        The last value tells whether it may continue their paragraph: it begins no other quote.
        """
        text, place, n_matched = line.expandtabs(4), 0, 0
        for width in self.widths:
            match = re.compile(r" {0,3}> ?" if width == 0 else f" {{{width}}}").match(text, place)
            if match is None:
                break
            place, n_matched = match.end(), n_matched + 1
        is_inside = n_matched == len(self.widths) or not self.may_be_code
        return n_matched, self.widths[:n_matched].count(0), is_inside and not text[place:].lstrip().startswith(">")


def _find_containers(line: str) -> _Containers:
    """Return the containers at the beginning of a line.

    >>> _find_containers("> - 1. dog").widths, _find_containers("  > dog").widths
    ([0, 2, 3], [2, 0])
    """
    text = line.expandtabs(4)
    place = len(text) - len(text.lstrip(" "))
    is_indented = place > 0
    widths = [place] if is_indented else []
    while match := _QUOTE.match(text, place) or _ITEM.match(text, place):
        widths.append(0 if ">" in match[0] else len(match[0]))
        place = match.end()
    return _Containers(widths, re.search(r"(?:\A|[-*+.)>] ) {4,}", text[:place]) is not None, is_indented)


def _begins_inline(line: str) -> bool:
    tag = MARKUP.match(line.lstrip())
    return tag is not None and (tag["name"] or "").lower() in INLINE


def _table(rows: list[str], line: int) -> Iterator[Piece]:
    for number, row in enumerate(rows):
        yield "\n" if number else ""
        if number == 1:
            yield row
            continue
        prefix = _match_prefix(_QUOTES if number else _PREFIX, row)
        yield prefix
        for place, cell in enumerate(re.split(r"(?<!\\)(\|)", row[len(prefix) :])):
            if place % 2:
                yield cell
            else:
                written = lambda text: _escape_inside(text).replace("|", "\\|")  # noqa: E731
                yield from make_pieces(_inline(cell), written, line=line + number)


def _paragraph(lines: list[str], containers: _Containers, number: int) -> Iterator[Piece]:
    """Yield the pieces of a paragraph; lines are joined but for hard breaks."""
    if not lines:
        return
    prefix = _match_prefix(_PREFIX, lines[0])
    yield prefix
    text, breaks = lines[0][len(prefix) :], list[str]()
    row = text  # the last one
    for following, line in enumerate(lines[1:], number + 1):
        n_quotes = containers.match(line)[1]
        lead = _match_prefix(re.compile(rf"(?:[ \t]*>){{{n_quotes}}}[ \t]*"), line)
        hard = re.search(r"(?: {2,}|\\)\r?\Z", row)
        row = line[len(lead) :]
        if hard:
            yield from _passages(text[: len(text) - len(hard[0])], breaks, number)
            yield f"{hard[0]}\n{lead}"
            text, breaks, number = row, [], following
        else:
            breaks.append(("\r\n" if text.endswith("\r") else "\n") + lead)
            text += f"\n{row}"
    closing = re.search(r"[ \t]+#+[ \t]*\r?\Z", text) if "#" in prefix else None
    end = closing.start() if closing else len(text)
    yield from _passages(text[:end], breaks, number)
    yield text[end:]


def _passages(text: str, breaks: list[str], number: int) -> Iterator[Piece]:
    """Yield the pieces of lines; those of a quote stay lines, as each has its mark."""
    is_quoted = any(">" in one for one in breaks)
    return make_pieces(_inline(text), escape, breaks=breaks if is_quoted else (), line=number)


def _inline(text: str) -> list[str | Tag]:
    """Return text and tags of a paragraph; marks without a partner are text."""
    parts: list[str | Tag] = []
    opened: list[tuple[int, str]] = []  # place of what may open an element, and its mark
    place = 0
    for match in _INLINE.finditer(text):
        parts.append(text[place : match.start()])
        place, whole = match.end(), match[0]
        if match["escaped"]:
            parts.append(match["escaped"])
        elif match["html"]:
            tag = make_tag(whole, match["html_name"], match["html_end"], match["html_rest"])
            values = html_values(whole, tag.name) if tag.name and not match["html_end"] else ()
            parts.append(replace(tag, values=values))
        elif match["entities"]:
            own = (match[f"entities_{group}"] for group in ("name", "end", "rest"))
            parts.append(make_escaped_tag(whole, *own))
        elif match["close"]:
            begin = next((i for i in range(len(opened) - 1, -1, -1) if opened[i][1] == "["), None)
            if begin is None:
                parts.append(whole)
                continue
            parts[opened[begin][0]] = Tag("[", "open", "[")
            parts.append(Tag(whole, "close", "[", values=markdown_values(whole)))
            del opened[begin:]
        elif match["bracket"]:
            opened.append((len(parts), "["))
            parts.append(whole)
        elif match["marks"]:
            _emphasis(text, match, parts, opened)
        else:
            parts.append(Tag(whole, "point", values=markdown_values(whole) if whole[0] == "!" else ()))
    parts.append(text[place:])
    return [part for part in parts if part]


def _emphasis(text: str, match: re.Match[str], parts: list[str | Tag], opened: list[tuple[int, str]]) -> None:
    """Add marks of emphasis: a tag if they close an element, else text."""
    mark = match[0]
    before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
    inside = mark[0] == "_" and before.isalnum() and after.isalnum()
    may_close = bool(before.strip()) and not inside
    while may_close and mark:
        inner = [
            i for i, (_, kind) in enumerate(opened) if kind == "[" or (kind[0] == mark[0] and len(kind) <= len(mark))
        ]
        if not inner or opened[inner[-1]][1] == "[":
            break
        place, kind = opened[inner[-1]]
        parts[place] = Tag(kind, "open", kind, needs_text=True)
        parts.append(Tag(kind, "close", kind, needs_text=True))
        del opened[inner[-1] :]
        mark = mark[len(kind) :]
    # Three marks open two elements; the one that is closed first is inside.
    following = re.search(re.escape(mark[0]) + "+", text[match.end() :]) if len(mark) == 3 else None
    kinds = (
        [mark]
        if len(mark) != 3
        else [mark[:2], mark[0]]
        if following and len(following[0]) == 1
        else [mark[0], mark[:2]]
    )
    for kind in filter(None, kinds):
        if after.strip() and not inside:
            opened.append((len(parts), kind))
        parts.append(kind)
