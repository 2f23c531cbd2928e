"""Placing inline tags around the translations of the words they were around.

Words are aligned by attention: each word of the translation to the source word that has most of its attention. An
element goes around the hull of the words aligned to its own, cut where it would overlap its neighbours; elements stay
nested as in the source, and each is written once.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from attnkit.formats.passages import Tag
from attnkit.text.protected import PROTECTED

_WORD = re.compile(
    PROTECTED.pattern + r"|[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+(?:['’.,:-][^\W_]+)*|[^\w\s]|_"
)
_NEAR = 32  # source words on each side of a point that are asked for its place

_SYMBOLS = frozenset("%@#&{}/\\_*")  # punctuation of Unicode that belongs to what is next to it


def find_words(text: str) -> list[tuple[int, int]]:
    """Return begin and end of words and marks.

    A Chinese or Japanese character is a word, and so is a protected part: no tag goes inside.
    """
    return [match.span() for match in _WORD.finditer(text)]


def find_marks(text: str, words: Sequence[tuple[int, int]]) -> set[int]:
    """Return the numbers of the words that are punctuation."""
    first = (text[begin] for begin, _ in words)
    return {number for number, c in enumerate(first) if unicodedata.category(c)[0] == "P" and c not in _SYMBOLS}


@dataclass(eq=False)
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
    behind = [*accumulate(reversed(parts), lambda text, part: part if isinstance(part, str) else text, initial="")]
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
            after = behind[len(parts) - number - 1]
            near = ("" if not number else parts[number - 1], "" if number + 1 == len(parts) else parts[number + 1])
            beside = [isinstance(part, Tag) and part.kind == "point" for part in near]  # points without a space between
            spaced = (
                not beside[0] and (not text or text[-1].isspace()),
                not beside[1] and (not after or after[:1].isspace()),
            )
            stack[-1].append(PlacedTag(part, 0, spaced=spaced))
            places.append((stack[-1][-1], "point", len(text)))
            if not spaced[0] and not spaced[1] and text[-1:].isalnum() and after[:1].isalnum():
                text += " "  # two words that only the point keeps apart
    text = text.rstrip()
    words = find_words(text)
    begins, ends = [begin for begin, _ in words], [end for _, end in words]
    for node, end, place in places:
        if end == "begin":
            node.begin = bisect_right(ends, place)
        else:
            node.end = bisect_left(begins, place)
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
    _Spans(marked, text, words, links).set(root)
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


class _Spans:
    """Finds the words of a translation in each element and behind each point."""

    def __init__(self, marked: Marked, text: str, words: Sequence[tuple[int, int]], links: Sequence[int]) -> None:
        self._marks, self._source_marks = find_marks(text, words), find_marks(marked.text, marked.words)
        self._n_source = len(marked.words)
        self._targets: list[list[int]] = [[] for _ in marked.words]
        """Words of the translation that are aligned to each source word, ascending."""
        for target, source in enumerate(links if marked.words else ()):
            self._targets[source].append(target)

    def set(self, parent: PlacedTag) -> None:
        """Set ``low`` and ``high`` of all nodes below a node, and sort them."""
        inside = range(parent.low, parent.high)
        elements, points = list[PlacedTag](), list[PlacedTag]()
        for child in parent.children:
            own = self._own_words(child, inside) if child.closing is not None else []
            if own:
                child.low, child.high = own[0], own[-1] + 1
                elements.append(child)
            else:
                child.low = child.high = self._point_place(child, inside)
                points.append(child)
        # Elements that cross are cut between their middles, and keep the order of these.
        elements.sort(key=lambda node: node.low + node.high)
        for one, other in pairwise(elements):
            if one.high > other.low:
                cut = (max(one.low, other.low) + min(one.high, other.high)) // 2
                one.high, other.low = max(one.low, cut), max(cut, other.low)
                other.high = max(other.high, other.low)
        self._fill(parent, elements)
        # A point that was outside an element stays outside.
        lows = [element.low for element in elements]
        for point in points:
            element = elements[place] if (place := bisect_left(lows, point.low) - 1) >= 0 else None
            if element is not None and element.low < point.low < element.high:
                point.low = point.high = element.low if point.begin <= element.begin else element.high
        places = {id(child): number for number, child in enumerate(parent.children)}
        parent.children.sort(key=lambda node: (node.low, node.high, places[id(node)]))
        for child in parent.children:
            self.set(child)

    def _own_words(self, node: PlacedTag, inside: range) -> list[int]:
        """Return the words of an element, without marks at its ends.

        Marks that its source begins or ends with stay.
        """
        own = sorted(i for word in range(node.begin, node.end) for i in self._targets[word] if i in inside)
        first, last = 0, len(own)
        while last - first > 1 and own[first] in self._marks and node.begin not in self._source_marks:
            first += 1
        while last - first > 1 and own[last - 1] in self._marks and node.end - 1 not in self._source_marks:
            last -= 1
        own = own[first:last]
        if not own and node.begin < node.end and len(inside):  # one word is better than nothing
            own = [min(self._point_place(node, inside), inside[-1])]
        if own and self._marks.issuperset(own) and not self._source_marks.issuperset(range(node.begin, node.end)):
            # An element around a word goes around one: emphasis of a mark alone would not be Markdown.
            nearest = min((i for i in inside if i not in self._marks), key=lambda i: abs(i - own[0]), default=None)
            own = own if nearest is None else [nearest]
        return own

    def _fill(self, parent: PlacedTag, elements: list[PlacedTag]) -> None:
        """Move elements that must not be empty into their neighbours."""
        for one in [element for element in elements if element.low == element.high and element.tag.needs_text]:
            hosts = (other for other in elements if other.low < other.high and other.low <= one.low <= other.high)
            if (host := next(hosts, None)) is not None:
                elements.remove(one)
                parent.children.remove(one)
                host.children.append(one)

    def _point_place(self, node: PlacedTag, inside: range) -> int:
        """Return the word that a point is before, by the nearest source words."""
        glued = not node.spaced[0] and node.spaced[1]
        for k in range(min(_NEAR, self._n_source)):
            near = [node.begin - 1 - k, node.begin + k]
            for word in near if glued else reversed(near):
                targets = self._targets[word] if 0 <= word < self._n_source else []
                own = [i for i in targets if i in inside]
                if own:
                    return own[-1] + 1 if word < node.begin else own[0]
        return inside.start + round(len(inside) * node.begin / max(1, self._n_source))


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
    for part in reversed(parts):
        if isinstance(part, str) and part:
            return part[-1].isspace()
        if isinstance(part, Tag) and part.kind == "point":
            return False
    return True


def _is_mark(word: str) -> bool:
    return not word[0].isalnum() and word not in "([{«„“‘"
