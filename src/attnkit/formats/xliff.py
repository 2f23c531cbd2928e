"""XLIFF 1.2 and 2.x: sources are passages, whose translations become the targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.parsers import expat

from attnkit.errors import DataError
from attnkit.formats.html import MARKUP, element_end, escape, split_escaped
from attnkit.formats.passages import Piece, Tag, make_pieces

_PAIRED = frozenset(["g", "mrk", "pc"])  # all other inline elements stand for something that is not text
_NO = re.compile(r"\btranslate\s*=\s*[\"']no[\"']|\bmtype\s*=\s*[\"']protected[\"']")
_PRESERVE = re.compile(r"\bxml:space\s*=\s*[\"']preserve[\"']")
_UNITS = frozenset(["trans-unit", "segment"])
_ELSEWHERE = frozenset(["alt-trans", "ignorable", "mtc:matches", "note"])


def parse_xliff(text: str) -> list[Piece]:
    """Return the pieces of an XLIFF document; sources without target get one.

    Targets with text, units with ``translate="no"`` and all else are copied. Raises ``DataError`` if the text is not
    well-formed XML, or no XLIFF.
    """
    check_xml(text)
    if not re.search(r"<(\w+:)?xliff\b", text):
        raise DataError("this file is not XLIFF: it has no element 'xliff'", help="choose another --format")
    return list(_pieces(text))


def check_xml(text: str) -> None:
    """Raise ``DataError`` unless the text is well-formed XML."""
    parser = expat.ParserCreate()
    try:
        parser.Parse(text.encode("utf-8"), True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DataError(f"this file is not well-formed XML: {reason}", where=f"line {error.lineno}") from error


def count_kept(text: str) -> int:
    """Return the number of sources that have a target with text already."""
    return sum(not found.is_empty for _, found, _ in _sources(text))


def set_target_language(text: str, language: str) -> str:
    """Return a document whose files name their target language, where none did."""
    version = re.search(r"<(?:\w+:)?xliff\b[^>]*?\bversion\s*=\s*.([12])", text)
    name, key = ("xliff", "trgLang") if version and version[1] == "2" else ("file", "target-language")
    return re.sub(rf"(<(?:\w+:)?{name}\b(?![^>]*\b{key}\b)[^>]*?)(?=/?>)", rf'\1 {key}="{language}"', text)


def _pieces(text: str) -> Iterator[Piece]:
    copied, begin, line = 0, 0, 1
    for match, found, preserved in _sources(text):
        if found.is_empty:
            yield text[copied : found.begin] + found.opening
            close = text.rindex("</", match.end(), element_end(text, match))
            begin, line = match.end(), line + text.count("\n", begin, match.end())
            yield from _source(text[begin:close], preserved, line)
            yield f"</{match['name'][: -len('source')]}target>"
            copied = found.end
    yield text[copied:]


def _sources(text: str) -> Iterator[tuple[re.Match[str], _Target, bool]]:
    """Yield sources to translate, their targets, whether white space counts."""
    place = 0
    stack: list[tuple[str, bool, bool]] = []  # element, whether it is translated, whether its white space counts
    for match in MARKUP.finditer(text):
        if match.start() < place or not match["name"]:
            continue
        name, attributes = _local(match["name"]), match["rest"]
        if match["end"]:
            while stack and stack.pop()[0] != name:
                pass
            continue
        _, translated, preserved = stack[-1] if stack else ("", True, False)
        translated = translated and not _NO.search(attributes) and name not in _ELSEWHERE
        preserved = preserved or bool(_PRESERVE.search(attributes))
        if name == "source" and translated and stack and stack[-1][0] in _UNITS and not attributes.endswith("/"):
            found = _Target(text, element_end(text, match), match["name"][: -len("source")])
            yield match, found, preserved
            place = found.end if found.is_empty else place
        if not attributes.endswith("/"):
            stack.append((name, translated, preserved))


class _Target:
    """Place of the target of a source.

    ``text[begin:end]`` is the target, or where it would be; it is replaced if it ``is_empty``.
    """

    def __init__(self, text: str, source_end: int, prefix: str) -> None:
        self.begin = self.end = source_end
        indent = re.search(r"\n[ \t]*\Z", text[: text.rfind("<" + prefix + "source", 0, source_end)][-200:])
        self.opening, self.is_empty = f"{indent[0] if indent else ''}<{prefix}target>", True
        for match in MARKUP.finditer(text, source_end):
            name = _local(match["name"] or "")
            if name == "seg-source" and not match["end"]:
                self.begin = self.end = element_end(text, match)
            elif name == "target" and match.start() >= self.end:
                self.begin = match.start()
                self.end = element_end(text, match)
                inside = text[match.end() : self.end]
                self.is_empty = not MARKUP.sub("", inside).strip()
                self.opening = match[0].rstrip("/>").rstrip() + ">"
            elif match.start() >= self.end and name and (match["end"] or name not in ("note", "mrk")):
                return


def _source(content: str, is_preserved: bool, number: int) -> Iterator[Piece]:
    parts: list[str | Tag] = []
    place = 0
    while match := MARKUP.search(content, place):
        parts += split_escaped(content[place : match.start()])
        place, name = match.end(), _local(match["name"] or "")
        if match["end"]:
            parts.append(Tag(match[0], "close", name))
        elif name in _PAIRED and not match["rest"].endswith("/") and not _NO.search(match["rest"]):
            parts.append(Tag(match[0], "open", name))
        else:
            place = (element_end(content, match) if name else 0) or place
            parts.append(Tag(content[match.start() : place], "point", name))
    parts += split_escaped(content[place:])
    run: list[str | Tag] = []
    for part in parts:
        lines = part.split("\n") if is_preserved and isinstance(part, str) else [part]
        run.append(lines[0])
        for line in lines[1:]:
            yield from make_pieces([part for part in run if part], escape, line=number)
            yield "\n"
            number += 1 + sum(part.text.count("\n") for part in run if isinstance(part, Tag))
            run = [line]
    yield from make_pieces([part for part in run if part], escape, line=number)


def _local(name: str) -> str:
    return name if name.startswith("mtc:") else name.rpartition(":")[2]
