"""Symbols inside sentences: placeholders of protected parts, and annotated terms.

A placeholder replaces a part that a translation must keep, such as a URL, on both sides. An annotation shows the
translation of a term inside the source, after the term (Dinu et al. 2019, Training Neural Machine Translation to Apply
Terminology Constraints).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from attnkit.text.protected import find_protected
from attnkit.text.word_boundaries import is_boundary, joins

N_PLACEHOLDERS = 32
PLACEHOLDERS = tuple(f"｟{number}｠" for number in range(1, N_PLACEHOLDERS + 1))
TERM, TRANSLATION, END = ANNOTATION = ("｟term｠", "｟as｠", "｟end｠")
"""Symbols before an annotated term, before its translation and after it."""


def inline_symbols(*, placeholders: bool, annotate_terms: bool) -> tuple[str, ...]:
    """Return the symbols that a vocabulary needs for these keys of ``data``."""
    return PLACEHOLDERS * (placeholders or annotate_terms) + ANNOTATION * annotate_terms


_SYMBOL = re.compile("|".join(map(re.escape, PLACEHOLDERS)))
_WRITTEN_SYMBOL = re.compile("|".join(map(re.escape, PLACEHOLDERS + ANNOTATION)))
_ANNOTATED = re.compile(f"({TERM})( *)(.*?){TRANSLATION}.*?{END}", re.DOTALL)
_INDEX = {symbol: k for k, symbol in enumerate(PLACEHOLDERS)}
_WRITTEN_DIFFERENTLY = re.compile(r"\d[.,]\d")  # numbers whose marks differ between languages


class KeptPart(NamedTuple):
    """A part of a text that a placeholder may replace."""

    begin: int
    end: int
    text: str


class MaskedText(NamedTuple):
    """A text with placeholders; ``parts[k]`` is what placeholder k + 1 replaces."""

    text: str
    parts: tuple[str, ...] = ()
    has_symbols: bool = True  #: False where symbols are ordinary text, to a model that has not learned them

    def restore(self, text: str) -> str:
        """Return a text, such as a translation, with the parts put back.

        A placeholder without a part is left out. A letter or digit before a part, or behind one that ends with a letter
        or digit, gets a space between, unless the source has one there, too.

        >>> mask("See https://a.org at 10:30").restore("Um ｟2｠ siehe ｟1｠")
        'Um 10:30 siehe https://a.org'
        """
        return "".join(piece for _, _, piece in self._pieces(text))

    def mask_other(self, text: str) -> str:
        """Replace the parts in another text by the same placeholders.

        It may be a reference or a prefix.

        >>> mask("at 10:30 of 12").mask_other("um 10:30 von 13")
        'um ｟1｠ von 13'
        """
        if not self.has_symbols:
            return text
        numbers = {part: number for number, part in enumerate(self.parts)}
        return _replace(text, find_kept(text), numbers)

    def places(self, text: str) -> list[int]:
        """Return the place of each character of a text in ``restore(text)``.

        The last place is that of its end.

        >>> mask("at 10:30").places("um ｟1｠!")
        [0, 1, 2, 3, 3, 3, 8, 9]
        """
        found: list[int] = []
        n_restored = 0
        for begin, end, piece in self._pieces(text):
            is_text = piece == text[begin:end]
            found += range(n_restored, n_restored + len(piece)) if is_text else [n_restored] * (end - begin)
            n_restored += len(piece)
        return [*found, n_restored]

    def _pieces(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield begin and end of pieces of a text, and what replaces each."""
        place, last = 0, ""
        for match in _SYMBOL.finditer(text) if self.has_symbols else ():
            if place < match.start():
                yield place, match.start(), text[place : match.start()]
                last = text[match.start() - 1]
            piece = self._part(match.group())
            place = match.end()
            following = text[place : place + 1]
            if piece:
                glued = self._is_glued(match.group())
                before = " " * (bool(last) and joins(last) and not glued[0])
                after = " " * (bool(following) and not is_boundary(piece[-1], following) and not glued[1])
                piece = before + piece + after
                last = piece[-1]
            elif last == following == " ":
                place += 1  # no two spaces around what is left out
            yield match.start(), place, piece
        yield place, len(text), text[place:]

    def _is_glued(self, symbol: str) -> tuple[bool, bool]:
        """Return whether the source has no space before a placeholder, and none after it.

        But for marks; a symbol before it counts.
        """
        around = self.text.split(symbol)
        before, after = (text[-1:] for text in around[:-1]), (text[:1] for text in around[1:])
        return any(c == "｠" or joins(c) for c in before if c), any(joins(c) for c in after if c)

    def _part(self, symbol: str) -> str:
        number = _INDEX[symbol]
        return self.parts[number] if number < len(self.parts) else ""


PLAIN = MaskedText("", has_symbols=False)


def find_kept(text: str, *, is_protected: bool = True) -> list[KeptPart]:
    """Return the parts that placeholders replace.

    These are protected parts, and symbols that are in the text itself. Numbers with a decimal mark or a thousands
    separator are left to the model, as languages write them differently, and digits alone, which may become words.

    >>> [part.text for part in find_kept("12 dogs, 2 cats, 3.50 m, a@b.de")]
    ['12', 'a@b.de']
    """
    parts = [
        KeptPart(part.begin, part.end, part.text)
        for part in (find_protected(text) if is_protected else ())
        if not (part.is_digit or (part.is_number and _WRITTEN_DIFFERENTLY.search(part.text)))
    ]
    if "｟" in text:
        own = [KeptPart(*match.span(), match.group()) for match in _WRITTEN_SYMBOL.finditer(text)]
        taken = [(one.begin, one.end) for one in own]
        parts = sorted([*(part for part in parts if not _overlaps(part, taken)), *own])
    return parts


def _overlaps(part: KeptPart, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a part overlaps one of the spans, which are in order."""
    place = bisect_right(spans, part.begin, key=lambda span: span[1])
    return place < len(spans) and spans[place][0] < part.end


def mask(text: str, *, is_protected: bool = True, kept: Sequence[tuple[int, int]] = ()) -> MaskedText:
    """Replace the kept parts of a text by placeholders, in order.

    Equal parts share one. Without ``is_protected`` only symbols in the text itself are replaced; in the spans ``kept``,
    which are in order, nothing is.

    >>> mask("{name} pays 20 and {name} 30").text
    '｟1｠ pays ｟2｠ and ｟1｠ ｟3｠'
    """
    parts = [part for part in find_kept(text, is_protected=is_protected) if not _overlaps(part, kept)]
    # Symbols of the text itself come first: none may be left for the model to read as its own.
    own = [part.text for part in parts if _WRITTEN_SYMBOL.fullmatch(part.text)]
    numbers: dict[str, int] = {}
    for part in [*own, *(part.text for part in parts)]:
        numbers.setdefault(part, len(numbers))
    return MaskedText(_replace(text, parts, numbers), tuple(numbers)[:N_PLACEHOLDERS])


def mask_pair(source: str, target: str) -> tuple[str, str]:
    """Replace the parts that both sides of a pair have equally often.

    >>> mask_pair("12 of 30 at www.a.org", "Bei www.a.org 30 von zwölf")
    ('12 of ｟1｠ at ｟2｠', 'Bei ｟2｠ ｟1｠ von zwölf')
    """
    sides = find_kept(source), find_kept(target)
    if not all(sides):
        return source, target
    counts, others = (Counter(part.text for part in parts) for parts in sides)
    shared = [text for text, n in counts.items() if others[text] == n]
    numbers = {text: number for number, text in enumerate(shared)}
    return _replace(source, sides[0], numbers), _replace(target, sides[1], numbers)


def _replace(text: str, parts: Iterable[KeptPart], numbers: dict[str, int]) -> str:
    numbered = ((part, numbers.get(part.text, N_PLACEHOLDERS)) for part in parts)
    known = [(part.begin, part.end, PLACEHOLDERS[k]) for part, k in numbered if k < N_PLACEHOLDERS]
    return replace_spans(text, known)


def replace_spans(text: str, spans: Iterable[tuple[int, int, str]]) -> str:
    """Return a text with spans replaced: begin, end and new text, in order."""
    pieces, place = [], 0
    for begin, end, new in spans:
        pieces += [text[place:begin], new]
        place = end
    return "".join([*pieces, text[place:]])


def placeholders_in(text: str) -> list[str]:
    """Return the placeholders of a text, in order."""
    return _SYMBOL.findall(text)


def annotate(text: str, terms: Sequence[tuple[int, int, str]]) -> str:
    """Show translations after the terms of a text.

    ``terms`` are begin, end and translation of each, in order. Symbols come before the spaces, so that words have the
    same tokens as without.

    >>> annotate("A dog runs", [(2, 5, "Hund")])
    'A｟term｠ dog｟as｠ Hund｟end｠ runs'
    """
    pieces, place = [], 0
    for begin, end, translation in terms:
        before = text[place:begin]
        kept = before.rstrip(" ")
        # At the beginning of a text words have the tokens that they have after a space.
        pieces += [kept, TERM, before[len(kept) :]] if kept or place else [before, TERM, " "]
        pieces.append(text[begin:end])
        pieces += [TRANSLATION, " ", translation, END]
        place = end
    return "".join([*pieces, text[place:]])


def without_annotations(text: str) -> str:
    """Return a text without what ``annotate`` has added.

    >>> without_annotations(annotate("A dog runs", [(0, 1, "Ein"), (2, 5, "Hund")]))
    'A dog runs'
    """

    def plain(match: re.Match[str]) -> str:
        is_added = not text[: match.start()].strip(" ")  # the space before a term at the beginning
        return match[2][is_added:] + match[3]

    return _ANNOTATED.sub(plain, text)


def places_in_plain(text: str) -> list[int]:
    """Return the place of each character in the text without annotations.

    The last place is that of the end of the text.

    >>> places_in_plain(annotate("A b", [(2, 3, "c")]))[7:]
    [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3]
    """
    found: list[int] = []
    place = n_plain = 0
    for match in _ANNOTATED.finditer(text):
        n_before = match.start() - place
        found += range(n_plain, n_plain + n_before)
        n_plain += n_before
        found += [n_plain] * len(match[1])
        is_added = not text[: match.start()].strip(" ")
        n_term = len(match[2]) + len(match[3]) - is_added
        found += [n_plain] * is_added + list(range(n_plain, n_plain + n_term))
        first = n_plain + len(match[2]) - is_added  # the translation belongs to the term's first character
        found += [first] * (match.end() - match.end(3))
        n_plain += n_term
        place = match.end()
    return [*found, *range(n_plain, n_plain + len(text) - place + 1)]
