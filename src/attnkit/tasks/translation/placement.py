"""Placing inline tags around the translations of the words they were around.

Words are aligned by attention: each word of the translation to the source word that has most of its attention. An
element goes around the hull of the words aligned to its own, cut where it would overlap its neighbours; elements stay
nested as in the source, and each is written once.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise

from attnkit.formats.passages import Tag

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+(?:['’.,:-][^\W_]+)*|[^\w\s]|_")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")

_SYMBOLS = frozenset("%@#&{}/\\_*")  # punctuation of Unicode that belongs to what is next to it


def find_words(text: str) -> list[tuple[int, int]]:
    """Return begin and end of words and marks.

    A Chinese or Japanese character is a word.
    """
    return [match.span() for match in _WORD.finditer(text)]


def find_marks(text: str, words: Sequence[tuple[int, int]]) -> Set[int]:
    """Return the numbers of the words that are punctuation."""
    first = (text[begin] for begin, _ in words)
    return {number for number, c in enumerate(first) if unicodedata.category(c)[0] == "P" and c not in _SYMBOLS}


@dataclass
class PlacedTag:
    """An element or a point, at words ``begin`` to ``end`` of the source."""

    tag: Tag
    begin: int
    end: int = 0
    closing: Tag | None = None  #: None for a point
    children: list[PlacedTag] = field(default_factory=list)
    spaced: tuple[bool, bool] = (True, True)  #: of a point: whether white space is before and after it
    low: int = 0  #: first word of the translation inside the element, or behind the point
    high: int = 0  #: behind the last one


@dataclass(frozen=True)
class Marked:
    """Text without its tags, and the tree of tags at places between its words."""

    text: str
    words: list[tuple[int, int]]
    nodes: list[PlacedTag]


def take_tags(parts: Sequence[str | Tag]) -> Marked:
    """Separate text and tags of balanced parts.

    White space around a removed point becomes one space.
    """
    text = ""
    root: list[PlacedTag] = []
    stack: list[list[PlacedTag]] = [root]
    places: list[tuple[PlacedTag, str, int]] = []  # node, its end that is meant, and where in the text
    for number, part in enumerate(parts):
        if isinstance(part, str):
            text += part.lstrip() if not text or (text.endswith(" ") and part[:1] == " ") else part
        elif part.kind == "open":
            stack[-1].append(PlacedTag(part, 0))
            places.append((stack[-1][-1], "begin", len(text)))
            stack.append(stack[-1][-1].children)
        elif part.kind == "close":
            stack.pop()
            stack[-1][-1].closing = part
            places.append((stack[-1][-1], "end", len(text)))
        else:
            after = next((other for other in parts[number + 1 :] if isinstance(other, str)), "")
            spaced = (not text or text[-1].isspace(), not after or after[:1].isspace())
            stack[-1].append(PlacedTag(part, 0, spaced=spaced))
            places.append((stack[-1][-1], "point", len(text)))
            if not spaced[0] and not spaced[1] and text[-1:].isalnum() and after[:1].isalnum():
                text += " "  # two words that only the point keeps apart
    text = text.rstrip()
    words = find_words(text)
    for node, end, place in places:
        if end == "begin":
            node.begin = sum(stop <= place for _, stop in words)
        else:
            node.end = sum(start < place for start, _ in words)
            if end == "point":
                node.begin = node.end
    return Marked(text, words, root)


def place_tags(marked: Marked, text: str, links: Sequence[int]) -> list[str | Tag]:
    """Return the parts of a translation with the tags of its source.

    Args:
        marked: the source.
        text: its translation.
        links: the source word that each word of ``text`` is aligned to.
    """
    words = find_words(text)
    root = PlacedTag(Tag("", "open"), 0, len(marked.words), Tag("", "close"), marked.nodes, high=len(words))
    marks, source_marks = find_marks(text, words), find_marks(marked.text, marked.words)
    _set_spans(root, links, len(marked.words), marks, source_marks)
    parts: list[str | Tag] = []
    gaps = [text[end:begin] for (_, end), (begin, _) in zip([(0, 0), *words], [*words, (len(text), 0)], strict=True)]
    _Writer(parts, [text[begin:end] for begin, end in words], gaps).write(root)
    parts.append(gaps[-1] if words else text)
    return merge_text(parts)


def merge_text(parts: Sequence[str | Tag]) -> list[str | Tag]:
    """Join neighbouring texts."""
    merged: list[str | Tag] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part:
            merged.append(part)
    return merged


def _set_spans(parent: PlacedTag, links: Sequence[int], n_source: int, marks: Set[int], source_marks: Set[int]) -> None:
    """Set ``low`` and ``high`` of all nodes below a node, and sort them.

    ``marks`` are the words that are punctuation; an element begins and ends with one only as its source does.
    """
    inside = range(parent.low, parent.high)
    elements, points = [], []
    for child in parent.children:
        own = [i for i in inside if child.begin <= links[i] < child.end]
        while own and own[0] in marks and child.begin not in source_marks and len(own) > 1:
            own = own[1:]
        while own and own[-1] in marks and child.end - 1 not in source_marks and len(own) > 1:
            own = own[:-1]
        if child.closing is not None and child.begin < child.end and not own and len(inside):
            own = [min(_point_place(child, links, inside, n_source), inside[-1])]  # better than around nothing
        if child.closing is not None and own:
            child.low, child.high = own[0], own[-1] + 1
            elements.append(child)
        else:
            child.low = child.high = _point_place(child, links, inside, n_source)
            points.append(child)
    # Elements that cross are cut between their middles, and keep the order of these.
    elements.sort(key=lambda node: node.low + node.high)
    for one, other in pairwise(elements):
        if one.high > other.low:
            cut = (max(one.low, other.low) + min(one.high, other.high)) // 2
            one.high, other.low = max(one.low, cut), max(cut, other.low if other.low > cut else cut)
            other.high = max(other.high, other.low)
    # What must not be empty goes inside its neighbour, around one of its words.
    for one in [element for element in elements if element.low == element.high and element.tag.needs_text]:
        hosts = [other for other in elements if other.low < other.high and other.low <= one.low <= other.high]
        if hosts:
            elements.remove(one)
            parent.children = [child for child in parent.children if child is not one]
            hosts[0].children.append(one)
    # A point that was outside an element stays outside.
    for point in points:
        for element in elements:
            if element.low < point.low < element.high:
                point.low = point.high = element.low if point.begin <= element.begin else element.high
    places = {id(child): number for number, child in enumerate(parent.children)}
    parent.children.sort(key=lambda node: (node.low, node.high, places[id(node)]))
    for child in parent.children:
        _set_spans(child, links, n_source, marks, source_marks)


def _point_place(node: PlacedTag, links: Sequence[int], inside: range, n_source: int) -> int:
    """Return the word of the translation that a point is placed before.

    It is found by the source words next to the point.
    """
    if not len(inside):
        return inside.start
    before = [node.begin - 1 - k for k in range(n_source)]
    after = [node.begin + k for k in range(n_source)]
    glued = not node.spaced[0] and node.spaced[1]
    for near in zip(before, after, strict=True) if glued else zip(after, before, strict=True):
        for word in near:
            own = [i for i in inside if links[i] == word]
            if own:
                return own[-1] + 1 if word < node.begin else own[0]
    return inside.start + round(len(inside) * node.begin / max(1, n_source))


@dataclass
class _Writer:
    """Writes words, gaps and tags in order."""

    parts: list[str | Tag]
    words: list[str]
    gaps: list[str]  #: before each word, and at the end
    place: int = 0  #: number of words written
    open_gap: bool = False  #: whether the gap before the next word is written already

    def write(self, node: PlacedTag) -> None:
        for child in node.children:
            self._words(child.low)
            if child.closing is None:
                self._point(child)
                continue
            if child.low < child.high:
                self._gap()
            elif child.tag.needs_text and not child.children:
                continue
            self.parts.append(child.tag)
            self.write(child)
            self.parts.append(child.closing)
        self._words(node.high)

    def _words(self, end: int) -> None:
        while self.place < end:
            self._gap()
            self.parts.append(self.words[self.place])
            self.place, self.open_gap = self.place + 1, False

    def _gap(self) -> None:
        if not self.open_gap and self.place < len(self.words):
            self.parts.append(self.gaps[self.place])
            self.open_gap = True

    def _point(self, node: PlacedTag) -> None:
        is_last = self.place == len(self.words)
        if node.spaced[0]:
            if not self.open_gap and not is_last:
                self._gap()
            if self.parts and not _ends_with_space(self.parts):
                self.parts.append(" ")
        self.parts.append(node.tag)
        if node.spaced[1] and not is_last and self.open_gap and not _is_mark(self.words[self.place]):
            self.parts.append(" ")


def _ends_with_space(parts: Sequence[str | Tag]) -> bool:
    text = next((part for part in reversed(parts) if isinstance(part, str) and part), " ")
    return text[-1].isspace()


def _is_mark(word: str) -> bool:
    return not word[0].isalnum() and word not in "([{«„“‘"
