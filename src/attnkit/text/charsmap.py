"""Precompiled character maps of SentencePiece: text and its replacement.

A map is a trie as a double array (https://github.com/s-yata/darts-clone), followed by the replacements. The longest
match is found here, exactly as SentencePiece finds it: ``Precompiled`` of ``tokenizers`` loses combining marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_ROWS = 4096  #: nodes whose successors are searched at a time, to bound memory
_LABELS = np.arange(1, 256, dtype=np.uint32)  # no key contains a byte 0
_IS_VALUE = 1 << 31  #: bit of units that hold a value instead of a label
MAX_NODES = 1 << 20  #: limit on the nodes of a trie; the one of NFKC has 40,000
MAX_KEY = 64  #: characters of a text that are compared with the keys; those of NFKC have at most 4
Units = NDArray[np.uint32]


class Charsmap:
    """A map from text to its replacement."""

    def __init__(self, raw: bytes) -> None:
        """Check and store a map; raise ``ValueError`` if it is damaged. No bytes: no map."""
        n_trie = int.from_bytes(raw[:4], "little") if raw else 0
        if raw and (len(raw) < 4 or n_trie % 4 or not 4 <= n_trie <= len(raw) - 4):
            raise ValueError("its character map is damaged")
        units = np.frombuffer(raw, "<u4", n_trie // 4, 4) if raw else np.zeros(0, np.uint32)
        self.raw = raw
        self._values = raw[4 + n_trie :]
        self.singles: set[str] = set()  #: characters that are replaced wherever nothing longer is
        self.firsts: set[str] = set()  #: first characters of longer texts
        self.others: set[str] = set()  #: further characters of longer texts
        if raw:
            self._collect(units)
        self._units = units.tolist()

    def longest(self, text: str, begin: int) -> tuple[int, str] | None:
        """Return the end and the replacement of the longest match from ``begin`` on."""
        found, units = None, self._units
        at = _offset(units[0])
        for end in range(begin, min(len(text), begin + MAX_KEY)):
            if "\ud800" <= text[end] <= "\udfff":
                return found  # half a character, which the encoder refuses
            for byte in text[end].encode():
                if (at := at ^ byte) >= len(units) or not byte or units[at] & (_IS_VALUE | 0xFF) != byte:
                    return found
                unit = units[at]
                at ^= _offset(unit)
            if unit >> 8 & 1:
                found = end + 1, self._value(units[at])
        return found

    def _value(self, unit: int) -> str:
        begin = unit & (_IS_VALUE - 1)
        end = self._values.find(b"\0", begin)
        if begin >= len(self._values) or end < 0:
            raise ValueError("its character map is damaged")
        return self._values[begin:end].decode()  # raises ValueError for invalid UTF-8

    def _collect(self, units: Units) -> None:
        """Find the characters of the keys, and check all values.

        A unit has a label (bits 0 to 7), a sign that a value follows (8), and the distance to its successors (9 to 31).
        Equal ends of keys share their nodes, so that each node between two characters is visited once.
        """
        seen, inner = np.zeros(len(units), bool), np.zeros(len(units), bool)
        roots: list[tuple[str, int]] = []
        checked: set[int] = set()
        # Per node: where its successors begin, bits of an unfinished character, its missing bytes, whether it is first.
        at, bits, missing, first = (np.array([value], np.uint32) for value in (_offset(int(units[0])), 0, 0, 1))
        n_reached = 0
        while len(at):
            rows, labels, taken = _successors(units, at)
            n_reached += len(rows)
            if n_reached > MAX_NODES:
                raise ValueError(f"its character map has more than {MAX_NODES:,} nodes")
            between = missing[rows] == 0
            inner[at[rows][between]] = True
            size = np.where(between, _n_bytes(labels), missing[rows])  # bytes of the character that are left, with this
            if (size == 0).any() or (~between & (labels >> 6 != 2)).any():
                raise ValueError("its character map is not UTF-8")
            lead, further = labels & (0xFF >> (size + (size > 1))), bits[rows] << 6 | labels & 63
            bits = np.where(between, lead, further).astype(np.uint32)
            missing, first = (size - 1).astype(np.uint32), first[rows]
            nodes = units[taken]
            at = (taken ^ ((nodes >> 10) << ((nodes & (1 << 9)) >> 6))).astype(np.uint32)
            if (at >= len(units)).any():
                raise ValueError("its character map is damaged")
            done = missing == 0
            valued = done & (nodes >> 8 & 1 == 1)
            for value in set(units[at[valued]].tolist()) - checked:
                checked.add(value)
                self._value(value)
            self.singles.update(map(chr, bits[valued & (first == 1)].tolist()))
            starts = done & (first == 1)
            roots += zip(map(chr, bits[starts].tolist()), at[starts].tolist(), strict=True)
            self.others.update(map(chr, np.unique(bits[done & (first == 0)]).tolist()))
            # Of the nodes between characters, keep those not seen before.
            new = np.zeros(len(at), bool)
            new[np.unique(at, return_index=True)[1]] = True
            kept = ~done | (done & ~seen[at])
            for place in np.flatnonzero(done & kept).tolist():
                kept[place], seen[at[place]] = not seen[at[place]], True
            at, bits, missing, first = at[kept], bits[kept], missing[kept], first[kept] * ~done[kept]
        self.firsts = {character for character, place in roots if inner[place]}


@lru_cache(maxsize=4)
def read_charsmap(raw: bytes) -> Charsmap:
    """Return the map of these bytes; the latest are kept.

    Most models have the same map, and reading it takes a tenth of a second.
    """
    return Charsmap(raw)


def _offset(unit: int) -> int:
    """Return the distance of a unit to its successors."""
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)


def _successors(units: Units, at: Units) -> tuple[NDArray[np.int64], Units, Units]:
    """Return the row of ``at``, the label and the place of each successor."""
    found = []
    for begin in range(0, len(at), _ROWS):
        places = at[begin : begin + _ROWS, None] ^ _LABELS  # (n, 255)
        there = units[np.minimum(places, len(units) - 1)]
        rows, columns = np.nonzero((places < len(units)) & ((there & (_IS_VALUE | 0xFF)) == _LABELS))
        found.append((rows + begin, _LABELS[columns], places[rows, columns]))
    return tuple(np.concatenate(part) for part in zip(*found, strict=True))  # type: ignore[return-value]


def _n_bytes(lead: Units) -> Units:
    """Return the length of the characters whose first byte this is; 0: none."""
    return np.select([lead < 0x80, lead < 0xC2, lead < 0xE0, lead < 0xF0, lead < 0xF5], [1, 0, 2, 3, 4], 0).astype("u4")


class Replacer:
    """Replacement of text by a map, from left to right, longest first."""

    def __init__(self, charsmap: Charsmap, kept: Sequence[str] = ()) -> None:
        """Prepare the search; texts in ``kept`` stay as they are wherever they occur."""
        self._map, self._kept = charsmap, frozenset(kept)
        patterns = [*map(re.escape, sorted(kept, key=len, reverse=True))]  # user-defined pieces come first
        if charsmap.firsts:
            patterns.append(f"{_one_of(charsmap.firsts)}(?={_one_of(charsmap.others)})")
        if charsmap.singles:
            patterns.append(_one_of(charsmap.singles))
        self._search = re.compile("|".join(patterns)).search
        self._is_empty = not (charsmap.firsts or charsmap.singles)

    def __call__(self, text: str) -> str:
        """Return the text with replacements."""
        return text if self._is_empty else "".join(new for _, _, new in self.parts(text))

    def parts(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield (begin, end, replacement) of each part, of unchanged parts as well."""
        at = 0
        while not self._is_empty and (match := self._search(text, at)) is not None:
            begin, end = match.span()
            yield at, begin, text[at:begin]
            found = None if match[0] in self._kept else self._map.longest(text, begin)
            at, new = (end, match[0]) if found is None else found
            yield begin, at, new
        yield at, len(text), text[at:]


def _one_of(characters: set[str]) -> str:
    """Return a pattern of one of these characters.

    The library has fast sets of characters up to U+FFFF alone, so that those above are ranges of their own.
    """
    patterns = []
    for chosen in (lambda c: c <= "\uffff", lambda c: c > "\uffff"):
        ranges: list[list[int]] = []
        for code in sorted(map(ord, filter(chosen, characters))):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
        if ranges:
            patterns.append("[" + "".join(f"\\U{a:08x}-\\U{b:08x}" for a, b in ranges) + "]")
    return f"(?:{'|'.join(patterns)})"
