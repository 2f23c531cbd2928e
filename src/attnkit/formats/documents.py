"""Formats of documents that are translated as a whole: how each is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from attnkit.errors import DataError
from attnkit.formats.html import MARKUP, html_faults, make_tag, parse_html, set_language, split_escaped
from attnkit.formats.markdown import parse_markdown
from attnkit.formats.passages import Piece, Tag, make_pieces
from attnkit.formats.subtitles import parse_subtitles
from attnkit.formats.suffixes import SUFFIXES, DocumentFormat
from attnkit.formats.xliff import count_kept, parse_xliff, set_target_language
from attnkit.text.files import BOM, LineCounts, suffix_of, undecodable
from attnkit.text.lines import opened

MAX_BYTES = 1 << 26  #: of a document

PARSERS: Mapping[DocumentFormat, Callable[[str], list[Piece]]] = {
    "html": parse_html,
    "markdown": parse_markdown,
    "xliff": parse_xliff,
    "srt": parse_subtitles,
}


def read_document(path: Path) -> str:
    """Return the text of a document, without a byte order mark; line ends stay.

    Raises ``DataError`` if it is not UTF-8, empty or larger than ``MAX_BYTES``.
    """
    counts = LineCounts()
    with opened(path, counts) as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise DataError(f"this document has more than {MAX_BYTES:,} bytes", where=str(path), help="split it")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise undecodable(path, raw[: error.start].count(b"\n") + 1, raw, error) from error
    if not text:
        raise DataError("this file is empty", where=str(path))
    return text.removeprefix(BOM)


def parse_document(text: str, format: DocumentFormat, path: Path) -> list[Piece]:
    """Return the pieces of a document; raise ``DataError`` if it is not of its format."""
    try:
        return PARSERS[format](text)
    except DataError as error:
        place = error.where.removeprefix("line ") if error.where else ""
        raise DataError(error.what, where=f"{path}:{place}" if place else str(path), help=error.help) from error


def find_others(paths: Iterable[Path], format: DocumentFormat) -> list[Path]:
    """Return the files whose names do not suggest a format."""
    return [path for path in paths if SUFFIXES.get(suffix_of(path)) != format]


def with_language(text: str, format: DocumentFormat, language: str) -> str:
    """Return a document that names its target language, if it is HTML or XLIFF."""
    change = {"html": set_language, "xliff": set_target_language}.get(format)
    return change(text, language) if change is not None else text


def describe(text: str, format: DocumentFormat) -> list[str]:
    """Return what a reader should know of a document beside its translation.

    Those are targets that are kept, tags without a partner, and a missing target language.
    """
    if format == "xliff":
        n = count_kept(text)
        found = [f"{n:,} {'unit has a target' if n == 1 else 'units have targets'} already: not translated"] * bool(n)
        is_second = re.search(r"<(?:\w+:)?xliff\b(?![^>]*\btrgLang\b)[^>]*\bsrcLang\b", text)
        return [*found, "this XLIFF lacks trgLang, the target language: add --tgt-lang"] if is_second else found
    if format == "markdown":
        blank = partial(re.sub, r"[^\n]", " ")
        text = re.sub(r"(?ms)^[ >]*(`{3,}|~{3,}).*?^[ >]*\1|(`+)[^`].*?\2", lambda code: blank(code[0]), text)
    if not (faults := html_faults(text)):
        return []
    place, tag = faults[0]
    what = "1 tag is" if len(faults) == 1 else f"{len(faults):,} tags are"
    where = f"{'' if len(faults) == 1 else 'first '}in line {text.count(chr(10), 0, place) + 1:,}: {tag:.40}"
    return [f"{what} without a partner, so the result is not well-formed ({where})"]


def parse_line(line: str, number: int = 1) -> list[Piece]:
    """Return the pieces of a line of text with tags as in HTML; entities are left."""
    parts: list[str | Tag] = []
    place = 0
    for match in MARKUP.finditer(line):
        parts += split_escaped(line[place : match.start()], str)
        parts.append(make_tag(match[0], match["name"], match["end"], match["rest"]))
        place = match.end()
    parts += split_escaped(line[place:], str)
    return list(make_pieces([part for part in parts if part], str, line=number))
