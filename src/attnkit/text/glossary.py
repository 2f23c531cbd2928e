"""Glossaries: terms of a source language and how they must be translated.

A file has a term per line: the source, a tab, its translation, and further allowed forms after further tabs. A line
without a translation is a term that stays as it is. Lines with the same source add forms to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from attnkit.errors import DataError
from attnkit.text.lines import is_blank, read_lines
from attnkit.text.word_boundaries import find_tokens, is_boundary

MAX_ENTRIES = 1_000_000


@dataclass
class GlossaryEntry:
    """A term and its translations; none means that it stays as it is."""

    source: str
    targets: tuple[str, ...]


class FoundTerm(NamedTuple):
    """A term in a text."""

    begin: int
    end: int
    entry: GlossaryEntry


@dataclass
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    entries: list[GlossaryEntry] = field(default_factory=list)


class Glossary:
    """Finds terms in texts: whole words, the longest ones, from left to right.

    A term in lower case is found in any case; other terms as they are written, or in capitals. What is written as in
    the text comes first.
    """

    def __init__(self, terms: Mapping[str, str | Sequence[str]]) -> None:
        """Take translations by terms; an empty one keeps the term as it is.

        Raises ``DataError`` for a term without letters or signs.
        """
        self.entries: dict[str, GlossaryEntry] = {}
        self._root = _Node()
        for source, targets in terms.items():
            self._add(source, [targets] if isinstance(targets, str) else targets, "the glossary")

    @classmethod
    def load(cls, path: Path) -> Glossary:
        """Read a file; raise ``DataError`` for a line without a term, or an empty file."""
        glossary = cls({})
        for number, line in enumerate(read_lines(path), 1):
            if not is_blank(line):
                source, *targets = line.split("\t")
                glossary._add(source, targets, f"{path}:{number}")
        if not glossary.entries:
            what = "the glossary has no terms"
            raise DataError(what, where=str(path), help="give lines of a term, a tab and its translation")
        return glossary

    def _add(self, source: str, targets: Iterable[str], where: str) -> None:
        term = source.strip()
        tokens = [term[begin:end] for begin, end in find_tokens(term)]
        if not tokens:
            raise DataError("a line of the glossary has no term", where=where, help="write: term, tab, translation")
        if len(self.entries) >= MAX_ENTRIES and term not in self.entries:
            raise DataError(f"the glossary has more than {MAX_ENTRIES:,} terms", where=where, help="leave out some")
        forms = tuple(text for target in targets if (text := target.strip()))
        entry = self.entries.get(term)
        if entry is not None:
            # A line without a translation allows the term itself, beside the forms of other lines.
            both = (entry.targets or (term,)) + (forms or (term,))
            entry.targets = tuple(dict.fromkeys(both)) if entry.targets or forms else ()
            return
        entry = self.entries[term] = GlossaryEntry(term, tuple(dict.fromkeys(forms)))
        node = self._root
        for token in tokens:
            node = node.children.setdefault(token.casefold(), _Node())
        node.entries.append(entry)

    def find(self, text: str) -> list[FoundTerm]:
        """Return the terms of a text, in order and without overlaps."""
        found: list[FoundTerm] = []
        places = find_tokens(text)
        tokens = [text[begin:end].casefold() for begin, end in places]
        at = 0
        while at < len(tokens):
            node, longest = self._root, None
            for k in range(at, len(tokens)):
                child = node.children.get(tokens[k])
                if child is None:
                    break
                node = child
                begin, end = places[at][0], places[k][1]
                if end == len(text) or is_boundary(text[end - 1], text[end]):  # no vowel sign follows
                    longest = _matching(node, text[begin:end], begin, end) or longest
            if longest is not None:
                found.append(longest)
                while at < len(places) and places[at][0] < longest.end:
                    at += 1
            else:
                at += 1
        return found


def _matching(node: _Node, text: str, begin: int, end: int) -> FoundTerm | None:
    """Return the entry of a node that is written as in the text, or in lower case.

    Text in capitals may be any entry.
    """
    as_written = (entry for entry in node.entries if "".join(entry.source.split()) == "".join(text.split()))
    in_lower = (entry for entry in node.entries if entry.source == entry.source.lower())
    entry = next(chain(as_written, in_lower, node.entries if is_capitals(text) else ()), None)
    return None if entry is None else FoundTerm(begin, end, entry)


def is_capitals(text: str) -> bool:
    """Return whether a text is in capitals, two letters or more."""
    return text.isupper() and sum(map(str.isalpha, text)) > 1
