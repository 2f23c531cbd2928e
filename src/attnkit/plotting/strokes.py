"""Letters as strokes, for pictures made of pixels where no font can be counted on: Latin with its accents, and signs.

A glyph is strokes divided by ``|``, a stroke is points, a point is two signs of base 36: x, then y downwards, 0 at the
top of a capital, 3 at the top of an x, a (10) on the line, d (13) below it. A stroke that begins with ``~`` is drawn as
a curve inside its corners, one with ``o`` as a closed curve. Whatever has no glyph is a box with its number, as in
Unifont, so that nothing is passed off as another sign.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Stroke = NDArray[np.float64]
"""Points (N, 2) of a line, in units."""
EM = 14.0
"""Units of a line's height."""

_GLYPHS = {
    "A": "0a 30 6a|17 57",
    "B": "0a 00|~00 50 55 05|~05 65 6a 0a",
    "C": "~62 60 00 0a 6a 68",
    "D": "0a 00|~00 60 6a 0a",
    "E": "50 00 0a 5a|05 45",
    "F": "50 00 0a|05 45",
    "G": "~62 60 00 0a 6a 65|65 35",
    "H": "00 0a|60 6a|05 65",
    "I": "00 0a",
    "J": "~40 45 4a 0a 07",
    "K": "00 0a|60 06|24 6a",
    "L": "00 0a 5a",
    "M": "0a 00 47 80 8a",
    "N": "0a 00 6a 60",
    "O": "o00 70 7a 0a",
    "P": "0a 00|~00 60 65 05",
    "Q": "o00 70 7a 0a|47 7b",
    "R": "0a 00|~00 60 65 05|35 6a",
    "S": "~62 60 00 05 65 6a 0a 08",
    "T": "00 60|30 3a",
    "U": "~00 05 0a 6a 65 60",
    "V": "00 3a 60",
    "W": "00 2a 41 6a 80",
    "X": "00 6a|60 0a",
    "Y": "00 35 60|35 3a",
    "Z": "00 60 0a 6a",
    "a": "o03 53 5a 0a|53 5a",
    "b": "00 0a|o03 53 5a 0a",
    "c": "~54 53 03 0a 5a 59",
    "d": "50 5a|o03 53 5a 0a",
    "e": "06 56|~56 53 03 0a 5a 58",
    "f": "~40 10 14|14 1a|03 33",
    "g": "o03 53 5a 0a|~53 58 5d 0d 0c",
    "h": "00 0a|~06 03 53 56 5a",
    "i": "03 0a|00 00",
    "ı": "03 0a",
    "j": "~23 28 2d 0d|20 20",
    "ȷ": "~23 28 2d 0d",
    "k": "00 0a|53 07|25 5a",
    "l": "00 0a",
    "m": "03 0a|~06 03 43 46 4a|~46 43 83 86 8a",
    "n": "03 0a|~06 03 53 56 5a",
    "o": "o03 53 5a 0a",
    "p": "03 0d|o03 53 5a 0a",
    "q": "53 5d|o03 53 5a 0a",
    "r": "03 0a|~07 03 43",
    "s": "~54 53 03 06 56 5a 0a 09",
    "t": "~10 17 1a 4a|03 43",
    "u": "~03 07 0a 5a 57 53|53 5a",
    "v": "03 3a 63",
    "w": "03 2a 44 6a 83",
    "x": "03 5a|53 0a",
    "y": "03 3a|63 1d",
    "z": "03 53 0a 5a",
    "0": "o00 60 6a 0a",
    "1": "12 30 3a",
    "2": "~02 00 60 64 0a|0a 6a",
    "3": "~01 00 60 65 25|~25 65 6a 0a 09",
    "4": "4a 40 07 67",
    "5": "60 00 04|~04 64 6a 0a 09",
    "6": "~61 60 00 08|o04 64 6a 0a",
    "7": "00 60 2a",
    "8": "o10 50 55 15|o05 65 6a 0a",
    "9": "o00 60 66 06|~62 6a 0a 09",
    ".": "0a 0a",
    ",": "1a 0c",
    ";": "15 15|1a 0c",
    ":": "05 05|0a 0a",
    "!": "00 07|0a 0a",
    "?": "~02 00 50 55 27|2a 2a",
    "'": "00 03",
    '"': "00 03|20 23",
    "`": "00 12",
    "(": "~30 04 07 3b",
    ")": "~00 34 37 0b",
    "[": "20 00 0b 2b",
    "]": "00 20 2b 0b",
    "{": "~40 20 25 05|~05 25 2b 4b",
    "}": "~00 20 25 45|~45 25 2b 0b",
    "/": "50 0b",
    "\\": "00 5b",
    "|": "00 0c",
    "-": "06 46",
    "_": "0b 6b",
    "+": "33 39|06 66",
    "=": "04 64|08 68",
    "*": "31 37|02 66|62 06",
    "<": "63 06 69",
    ">": "03 66 09",
    "~": "~07 14 58 65",
    "^": "03 30 63",
    "#": "20 1a|50 4a|03 63|07 67",
    "$": "~62 60 00 05 65 6a 0a 08|30 3a",
    "%": "60 0a|o00 20 23 03|o47 67 6a 4a",
    "&": "~6a 12 10 40 43 06 0a 4a 66",
    "@": "o33 63 67 37|~63 68 88 80 00 0a 6a",
    " ": "",
    "▁": "0b 5b",
    "␣": "09 0b 5b 59",
    "…": "0a 0a|3a 3a|6a 6a",
    "·": "06 06",
    "×": "04 59|54 09",
    "–": "06 56",
    "—": "06 86",
    "‘": "00 12",
    "’": "10 02",
    "“": "00 12|30 42",
    "”": "10 02|40 32",
    "«": "34 06 38|64 36 68",
    "»": "04 36 08|34 66 38",
    "¿": "33 33|~36 38 08 0d 5d 5b",
    "¡": "03 03|06 0d",
    "ß": "0a 02|~02 00 50 55 25|~25 65 6a 2a",
    "æ": "o03 43 4a 0a|46 86|~86 83 43 4a 8a 89",
    "œ": "o03 43 4a 0a|46 86|~86 83 43 4a 8a 89",
    "Æ": "0a 40 80|40 4a 8a|45 75|17 47",
    "Œ": "~50 00 0a 5a|50 5a|50 90|55 85|5a 9a",
    "ø": "o03 53 5a 0a|52 0b",
    "Ø": "o00 70 7a 0a|70 0a",
    "ł": "00 0a|06 23",
    "Ł": "10 1a 6a|06 33",
    "đ": "50 5a|o03 53 5a 0a|31 61",
    "€": "~71 70 10 1a 7a 79|04 54|07 57",
    "°": "o00 30 33 03",
    "←": "06 86|33 06 39",
    "→": "06 86|53 86 59",
}
_MARKS = {
    "\u0300": "10 32",
    "\u0301": "30 12",
    "\u0302": "02 20 42",
    "\u0303": "~02 10 32 40",
    "\u0304": "01 41",
    "\u0306": "~00 02 42 40",
    "\u0307": "21 21",
    "\u0308": "01 01|41 41",
    "\u030a": "o10 30 32 12",
    "\u030b": "20 12|40 32",
    "\u030c": "00 22 40",
}
"""Combining marks above, in a field of 4 by 2."""
_BELOW = {"\u0327": "~2a 2d 0d", "\u0328": "~3a 1d 3d", "\u0323": "2c 2c"}
_BARE = {"i": "ı", "j": "ȷ"}
_GAP = 2.6


def known(text: str) -> bool:
    """Return whether every sign of a text has a glyph."""
    return all(_strokes(char) is not None for char in text)


@lru_cache(maxsize=2048)
def glyph(char: str) -> tuple[tuple[Stroke, ...], float]:
    """Return the strokes of a character, in units from the left end of its field, and how wide the field is."""
    strokes = _strokes(char)
    if strokes is None:
        return _box(char)
    right = max((float(stroke[:, 0].max()) for stroke in strokes), default=2.0)
    return strokes, right + _GAP


def measure(text: str) -> float:
    """Return the width of a text in units."""
    return sum(glyph(char)[1] for char in text)


def _strokes(char: str) -> tuple[Stroke, ...] | None:
    """Return a character's strokes, its accents among them, or None where there are none."""
    if char in _GLYPHS:
        return _parse(_GLYPHS[char])
    parts = list(unicodedata.normalize("NFD", char))
    base, marks = parts[0], parts[1:]
    if base not in _GLYPHS or not marks or any(mark not in _MARKS and mark not in _BELOW for mark in marks):
        return None
    above = any(mark in _MARKS for mark in marks)
    strokes = _parse(_GLYPHS[_BARE.get(base, base) if above else base])
    middle = max(float(stroke[:, 0].max()) for stroke in strokes) / 2
    top = -3.2 if base.isupper() or base in "bdfhklt" else -0.3
    for mark in marks:
        given = _parse(_MARKS.get(mark) or _BELOW[mark])
        shift = np.array([middle - 2.0, top if mark in _MARKS else 0.0])
        strokes += tuple(stroke + shift for stroke in given)
    return strokes


@lru_cache(maxsize=512)
def _parse(text: str) -> tuple[Stroke, ...]:
    strokes = []
    for part in filter(None, text.split("|")):
        points = np.array([[int(sign, 36) for sign in pair] for pair in part.lstrip("~o").split()], np.float64)
        strokes.append(_round(points, closed=part[0] == "o") if part[0] in "~o" else points)
    return tuple(strokes)


def _round(points: Stroke, *, closed: bool) -> Stroke:
    """Cut corners three times over (Chaikin 1974): the limit touches each edge at its middle."""
    for _ in range(3):
        ends = np.concatenate([points, points[:1]]) if closed else points
        near, far = 0.75 * ends[:-1] + 0.25 * ends[1:], 0.25 * ends[:-1] + 0.75 * ends[1:]
        cut = np.stack([near, far], 1).reshape(-1, 2)
        points = cut if closed else np.concatenate([points[:1], cut, points[-1:]])
    return np.concatenate([points, points[:1]]) if closed else points


def _box(char: str) -> tuple[tuple[Stroke, ...], float]:
    """Return a frame around the number of a character in hexadecimal, in two lines."""
    number = f"{ord(char):04X}" if ord(char) < 0x10000 else f"{ord(char):06X}"
    half = len(number) // 2
    width = 3.4 * half + 1.0
    strokes = [np.array([[0, -1], [width, -1], [width, 11], [0, 11], [0, -1]], np.float64)]
    for row, digits in enumerate((number[:half], number[half:])):
        for column, digit in enumerate(digits):
            shift = np.array([1.0 + 3.4 * column, 0.4 + 5.4 * row])
            strokes += [stroke * 0.4 + shift for stroke in _parse(_GLYPHS[digit])]
    return tuple(strokes), width + _GAP
