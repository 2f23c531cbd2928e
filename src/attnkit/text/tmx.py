"""Segments of one language in TMX, the exchange format of translation memories.

The file is read as a stream. A translation unit without the language is None, so that all languages of a file have
equally many lines. Entities that a document defines are refused: they can grow without bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from attnkit.errors import DataError
from attnkit.text.files import MAX_BYTES, LineCounts, opened_file

_BLOCK = 1 << 16  # bytes parsed at once
MAX_DEPTH = 64  #: maximum nesting of elements; segments of real files reach ten
_CODES = frozenset(["bpt", "ept", "ph", "it", "ut", "sub"])  # elements within a segment that are not its text
_MAX_TAG = 1 << 22  # bytes of a tag or comment, which the parser reads again with each block
_MAX_LANGUAGES = 100  # remembered for a message


@dataclass
class LanguageCounts:
    """Languages of the translation units read so far."""

    n_units: int = 0  #: units that have the language
    others: set[str] = field(default_factory=set)  #: codes of other languages


def read_tmx(path: Path, language: str, found: LanguageCounts) -> Iterator[str | None]:
    """Yield the segment of each translation unit in a language; None if it has none.

    ``en`` is also ``en-US``. Raises ``DataError`` if the file is not well-formed or defines entities.
    """
    handler = _Units(language, found)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = handler.start, handler.end
    parser.CharacterDataHandler = handler.text
    parser.EntityDeclHandler = handler.refuse_entity
    n_bytes = 0
    with opened_file(path, LineCounts()) as stream:
        try:
            while True:
                block = stream.read(_BLOCK)
                n_bytes += len(block)
                parser.Parse(block, not block)
                if n_bytes - max(0, parser.CurrentByteIndex) > _MAX_TAG:
                    raise ValueError(f"a tag or comment of more than {_MAX_TAG:,} bytes")
                yield from handler.take()
                if not block:
                    break
        except expat.ExpatError as error:
            reason, where = expat.ErrorString(error.code), f"{path}:{error.lineno}"
            raise DataError(f"this file is not well-formed XML: {reason}", where=where) from error
        except ValueError as error:
            raise DataError(f"this TMX is refused: {error}", where=f"{path}:{parser.CurrentLineNumber}") from error
    if not handler.is_tmx:
        raise DataError("this file is not TMX: its first element is not 'tmx'", where=str(path))


class _Units:
    """Handler of XML events, which collects the segments of one language."""

    def __init__(self, language: str, found: LanguageCounts) -> None:
        self._counts = found
        self._wanted = language.lower().replace("_", "-")
        self._depth = 0
        self._done: list[str | None] = []
        self._segment: list[str] | None = None  # text of the open segment, if it is wanted
        self._size = 0
        self._found: str | None = None  # segment of the open unit
        self._is_wanted = False  # whether the open variant has the language
        self._codes = 0  # open elements whose content is not text
        self.is_tmx = False

    def take(self) -> list[str | None]:
        """Return the units since the last call."""
        done, self._done = self._done, []
        return done

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"its elements are nested more than {MAX_DEPTH} levels deep")
        if self._depth == 1:
            self.is_tmx = name == "tmx"
            if not self.is_tmx:
                raise ValueError("its first element is not 'tmx'")
        if name == "tu":
            self._found, self._is_wanted = None, False
        elif name == "tuv":
            language = attributes.get("xml:lang", attributes.get("lang", "")).lower().replace("_", "-")
            matches = language == self._wanted or language.startswith(f"{self._wanted}-")
            self._is_wanted = matches and self._found is None
            if not matches and len(self._counts.others) < _MAX_LANGUAGES:
                self._counts.others.add(language[:40])
        elif name == "seg" and self._is_wanted:
            self._segment, self._size, self._codes = [], 0, 0
        elif name in _CODES and self._segment is not None:
            self._codes += 1

    def text(self, text: str) -> None:
        if self._segment is None or self._codes:
            return
        self._segment.append(text)
        self._size += len(text)
        if self._size > MAX_BYTES:
            raise ValueError(f"a segment of more than {MAX_BYTES:,} characters")

    def end(self, name: str) -> None:
        self._depth -= 1
        if name == "seg" and self._segment is not None:
            self._found, self._segment = "".join(self._segment), None
            self._counts.n_units += 1
        elif name in _CODES and self._segment is not None:
            self._codes -= 1
        elif name == "tu":
            self._done.append(self._found)

    def refuse_entity(self, name: str, *rest: object) -> None:
        raise ValueError(f"it defines an entity, '{name[:40]}'")
