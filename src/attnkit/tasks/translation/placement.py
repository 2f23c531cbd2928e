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
from attnkit.text.protected import UNSPACED, find_protected
from attnkit.text.word_boundaries import joins

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+(?:['’.,:-][^\W_]+)*|[^\w\s]|_")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_NEAR = 32  # source words on each side of a point that are asked for its place

_SYMBOLS = frozenset("%@#&{}/\\_*")  # punctuation of Unicode that belongs to what is next to it
_OPENING, _CLOSING = frozenset("([{«„“‘¿¡"), frozenset(".,;:!?)]}»")
_BETWEEN = frozenset("-/\"'’\\_")  # marks that may be next to a word on both sides
_POINT = "\ufffc"  # a point beside a point


def find_words(text: str) -> list[tuple[int, int]]:
    """Return begin and end of words and marks.

    A Chinese or Japanese character is a word, and so is a protected part: no tag goes inside.
    """
    words, place = list[tuple[int, int]](), 0
    for part in find_protected(text):
        words += [match.span() for match in _WORD.finditer(text, place, part.begin)]
        words.append((part.begin, part.end))
        place = part.end
    return words + [match.span() for match in _WORD.finditer(text, place)]


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
    near: tuple[str, str] = ("", "")  #: of a point: the characters before and after it; empty at the ends of the text
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

    White space around a removed point becomes one space, and none before a mark such as a full stop.
    """
    text = ""
    root: list[PlacedTag] = []
    stack: list[list[PlacedTag]] = [root]
    places: list[tuple[PlacedTag, str, int]] = []  # node, its end that is meant, and where in the text
    behind = [*accumulate(reversed(parts), lambda text, part: part if isinstance(part, str) else text, initial="")]
    for number, part in enumerate(parts):
        if isinstance(part, str):
            if text.endswith(" ") and part[:1] in _CLOSING and _is_point(parts[number - 1]):
                text = text[:-1]
                for k in range(len(places) - 1, -1, -1):
                    node, end, place = places[k]
                    if place <= len(text):
                        break
                    places[k] = (node, end, len(text))
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
            beside = [
                any(map(_is_point, side)) for side in (parts[number - 1 : number], parts[number + 1 : number + 2])
            ]
            near = _POINT if beside[0] else text[-1:], _POINT if beside[1] else after[:1]
            stack[-1].append(PlacedTag(part, 0, near=near))
            places.append((stack[-1][-1], "point", len(text)))
            if text[-1:].isalnum() and after[:1].isalnum() and not any(beside):
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
        self._end = _end_of_words(len(words), self._marks)
        self._source_end = _end_of_words(self._n_source, self._source_marks)
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
        glued = bool(node.near[0].strip()) and not node.near[1].strip()
        for k in range(min(_NEAR, self._n_source)):
            near = [node.begin - 1 - k, node.begin + k]
            for word in near if glued else reversed(near):
                targets = self._targets[word] if 0 <= word < self._n_source else []
                own = [i for i in targets if i in inside]
                if own:
                    place = own[-1] + 1 if word < node.begin else own[0]
                    # What is before the last marks of the source stays before those of the translation.
                    is_late = place > self._end and node.begin <= self._source_end
                    return max(self._end, inside.start) if is_late else place
        return inside.start + round(len(inside) * node.begin / max(1, self._n_source))


@dataclass
class _Writer:
    """Writes words, gaps and tags in order."""

    parts: list[str | Tag]
    words: list[str]
    gaps: list[str]  #: before each word, and at the end
    place: int = 0  #: number of words written
    open_gap: bool = False  #: whether the gap before the next word is written already
    last: PlacedTag | None = None  #: the point before the next word

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
        if self.place == len(self.words):
            return
        gap = self.gaps[self.place]
        if not self.open_gap:
            self.parts.append(gap)
            self.open_gap = True
        if self.last is not None:
            # White space that the text has between two words is before and after a point between them.
            beside, first = self.last.near[1], self.words[self.place][0]
            is_glued = self._before().isspace() or _is_glued(beside, first)
            if not is_glued and (gap or first in _OPENING or _is_spaced(first)):
                self.parts.append(gap or " ")
            self.last = None

    def _point(self, node: PlacedTag) -> None:
        if not _is_glued(node.near[0], ""):
            if not self.open_gap:
                self._gap()
            before = self._before()
            is_end = self.place == len(self.words) and before in _BETWEEN
            if not _is_glued(node.near[0], before) and (before in _CLOSING or is_end or _is_spaced(before)):
                self.parts.append(" ")
        self.parts.append(node.tag)
        self.last = node

    def _before(self) -> str:
        """Return the last character written, ``_POINT`` for a point; empty at first."""
        for part in reversed(self.parts):
            if isinstance(part, str) and part:
                return part[-1]
            if isinstance(part, Tag) and part.kind == "point":
                return _POINT
        return ""


def _end_of_words(n: int, marks: set[int]) -> int:
    """Return the end of n words without the marks that are last."""
    while n and n - 1 in marks:
        n -= 1
    return n


def _is_point(part: str | Tag) -> bool:
    return isinstance(part, Tag) and part.kind == "point"


def _is_glued(beside: str, found: str) -> bool:
    """Return whether a point has no white space before or after ``found``.

    In the source it has ``beside`` there.
    """
    return bool(beside) and (beside in (_POINT, found) or joins(beside))


def _is_spaced(character: str) -> bool:
    """Return whether white space separates a character from a point."""
    if not character or character.isspace() or _UNSPACED.match(character):
        return False
    return character not in _OPENING | _CLOSING | _BETWEEN
