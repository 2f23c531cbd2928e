"""Markdown (CommonMark, with tables, footnotes and front matter) as passages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal, TypeAlias

from attnkit.formats.attributes import html_values, markdown_values
from attnkit.formats.html import INLINE, MARKUP, make_tag, parse_html
from attnkit.formats.passages import Piece, Tag, make_pieces

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_PREFIX = re.compile(
    r"(?:[ \t]*>[ \t]?)*[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?|#{1,6}[ \t]+|\[\^[^\]\s]+\]:[ \t]+)*"
)
_QUOTES = re.compile(r"(?:[ \t]*>[ \t]?)*[ \t]*")
_RULE = re.compile(r"(?:[ \t]*>[ \t]?)*[ \t]*(?:(?:-[ \t]*){2,}|(?:=[ \t]*)+|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})\r?")
_TABLE_RULE = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*\r?")
_DEFINITION = re.compile(r" {0,3}\[[^\]\^][^\]]*\]:[ \t]*\S")
_HTML_BLOCK = re.compile(r" {0,3}<(?:!|\?|/?[A-Za-z][\w-]*[\s/>])")
_HTML = re.sub("[?]P<(end|name|rest)>", r"?P<html_\1>", MARKUP.pattern)
_INLINE = re.compile(
    r"\\(?P<escaped>[!-/:-@\[-`{-~])"
    r"|(?P<code>(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|(?P<math>\$\$[^$]+\$\$|\$[^\s$](?:[^$\n]*[^\s$])?\$(?!\d))"
    r"|(?P<auto><(?:[A-Za-z][A-Za-z0-9+.-]*:[^\s<>]*|[\w.+-]+@[\w.-]+)>)"
    rf"|(?P<html>{_HTML})"
    r"|(?P<footnote>\[\^[^\]\s]+\])"
    r"|(?P<image>!\[[^\]\[]*\](?:\([^()\s]*(?:[ \t]+\"[^\"]*\")?\)|\[[^\]]*\]))"
    r"|(?P<close>\](?:\((?:<[^<>]*>|[^()\s]*(?:\([^()]*\)[^()\s]*)*)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\)|\[[^\]\[]*\]))"
    r"|(?P<bracket>\[)"
    r"|(?P<marks>\*{1,3}|_{1,3}|~~)",
    re.DOTALL,
)


def escape(text: str) -> str:
    """Write text in Markdown: characters that would be markup get a backslash."""
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
    first = 1  # line of the paragraph
    after_blank = True
    while place < len(lines):
        kind, end = _find_block(lines, place, bool(paragraph), after_blank)
        block = lines[place:end]
        if kind == "text":
            paragraph += block
        else:
            if paragraph:
                yield from _paragraph(paragraph, first)
                yield "\n"
            paragraph, first = block if kind == "beginning" else [], place + 1
            if kind == "heading":
                yield from _paragraph(block, first)
            elif kind == "html":
                yield from parse_html("\n".join(block), first)
            elif kind == "table":
                yield from _table(block, first)
            elif kind == "copied":
                yield "\n".join(block)
            if kind != "beginning" and end < len(lines):
                yield "\n"
        after_blank = not block[0].strip()
        place = end
    yield from _paragraph(paragraph, first)


def _front_matter_end(lines: list[str]) -> int:
    """Return the number of lines of the front matter, 0 without."""
    if lines[0].rstrip() != "---":
        return 0
    return next((i + 1 for i in range(1, len(lines) - 1) if lines[i].rstrip() in ("---", "...")), 0)


_Kind: TypeAlias = Literal["text", "beginning", "heading", "html", "table", "copied"]
"""Of a block; ``text`` continues a paragraph or item, which ``beginning`` begins."""


def _find_block(lines: list[str], place: int, in_paragraph: bool, after_blank: bool) -> tuple[_Kind, int]:
    """Return the kind of the block at ``place`` and where it ends."""
    line, end = lines[place], place + 1
    if fence := _FENCE.match(line.lstrip(" >\t")):
        closing = (i + 1 for i in range(end, len(lines)) if lines[i].lstrip(" >\t").startswith(fence[1]))
        return "copied", next(closing, len(lines))
    if not in_paragraph and _HTML_BLOCK.match(line) and not _begins_inline(line):
        blank = (i for i in range(end, len(lines)) if not lines[i].strip())
        return "html", next(blank, len(lines))
    if "|" in line and end < len(lines) and "|" in lines[end] and _TABLE_RULE.fullmatch(lines[end]):
        return "table", next((i for i in range(end, len(lines)) if "|" not in lines[i]), len(lines))
    if not line.strip(" >\t\r") or _RULE.fullmatch(line) or _DEFINITION.match(line):
        return "copied", end
    is_indented = line.startswith(("    ", "\t")) and not line.lstrip().startswith(("-", "*", "+", ">", "|"))
    if is_indented and after_blank and not in_paragraph:
        return "copied", end
    if line.lstrip(" >\t").startswith("#"):
        return "heading", end
    begins = _PREFIX.match(line)
    is_item = begins is not None and begins[0].strip(" >\t") != ""
    return ("text" if in_paragraph and not is_item else "beginning"), end


def _begins_inline(line: str) -> bool:
    tag = MARKUP.match(line.lstrip())
    return tag is not None and (tag["name"] or "").lower() in INLINE


def _table(rows: list[str], line: int) -> Iterator[Piece]:
    for number, row in enumerate(rows):
        yield "\n" if number else ""
        if number == 1:
            yield row
            continue
        for place, cell in enumerate(re.split(r"(?<!\\)(\|)", row)):
            if place % 2:
                yield cell
            else:
                written = lambda text: escape(text).replace("|", "\\|")  # noqa: E731
                yield from make_pieces(_inline(cell), written, line=line + number)


def _paragraph(lines: list[str], number: int) -> Iterator[Piece]:
    """Yield the pieces of a paragraph; lines are joined but for hard breaks."""
    if not lines:
        return
    prefix = _PREFIX.match(lines[0])
    begin = prefix.end() if prefix else 0
    yield lines[0][:begin]
    rows = [lines[0][begin:]]
    quotes = [_QUOTES.match(line) for line in lines[1:]]
    rest = [
        (found[0] if found else "", line[found.end() if found else 0 :])
        for found, line in zip(quotes, lines[1:], strict=True)
    ]
    text = rows[0]
    for following, (lead, row) in enumerate(rest, number + 1):
        if hard := re.search(r"(?: {2,}|\\)\r?\Z", text):
            yield from make_pieces(_inline(text[: hard.start()]), escape, line=number)
            yield f"{hard[0]}\n{lead}"
            text, number = row, following
        else:
            text += f"\n{row}"
    closing = re.search(r"[ \t]+#+[ \t]*\r?\Z", text) if prefix and "#" in prefix[0] else None
    end = closing.start() if closing else len(text)
    yield from make_pieces(_inline(text[:end]), escape, line=number)
    yield text[end:]


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
