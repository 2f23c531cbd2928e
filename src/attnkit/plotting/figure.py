"""Pictures for papers, laid out once and written as SVG or PNG: heat maps as boxes and texts. Knows no models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from rich.cells import cell_len

from attnkit.plotting.attention_maps import MapSlice, shown

FONT, SMALL = 12.0, 10.0
"""Heights of text, in pixels."""
_RAMP = ((247, 250, 252), (198, 221, 238), (112, 172, 212), (36, 113, 178), (8, 48, 107))
"""Colours from weight 0 to the largest, even steps apart."""
_PAD, _BAR = 16.0, 160.0
_LONGEST = 24
"""Columns of a terminal that a token may take; longer ones are cut."""
MOST_COLUMNS = 4
"""Panels side by side."""


@dataclass(frozen=True)
class Box:
    """A filled rectangle, in pixels from the upper left, with what a pointer over it is told."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    title: str = ""


@dataclass(frozen=True)
class Text:
    """A line of text whose base line begins, is centred or ends at a point; turned, it runs upwards."""

    x: float
    y: float
    text: str
    size: float = FONT
    anchor: Literal["start", "middle", "end"] = "start"
    turned: bool = False
    strong: bool = False


@dataclass(frozen=True)
class Figure:
    """What there is to draw, on white."""

    width: float
    height: float
    boxes: Sequence[Box]
    texts: Sequence[Text]


def colour(share: float) -> str:
    """Return the colour of a weight as a share of the largest; what is no number is red."""
    if not np.isfinite(share):
        return "#c0392b"
    place = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    mixed = [a + (b - a) * (place - low) for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True)]
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def heat_maps(pictures: Sequence[MapSlice], heading: str = "") -> Figure:
    """Lay out heat maps in rows of at most ``MAX_COLUMNS``, with one scale of colours for all."""
    top = max((float(np.max(p.weights, where=np.isfinite(p.weights), initial=0.0)) for p in pictures), default=0.0)
    top = top if top > 0 else 1.0
    said = "; ".join(dict.fromkeys(picture.axes for picture in pictures))
    texts = [
        Text(_PAD, _PAD + FONT, _cut(shown(heading) if heading else "", 120), 14.0, strong=True),
        Text(_PAD, _PAD + 32, said, SMALL),
    ]
    boxes: list[Box] = []
    y, right = _PAD + 48, _PAD + _BAR
    for start in range(0, len(pictures), MOST_COLUMNS):
        x, bottom = _PAD, y
        for picture in pictures[start : start + MOST_COLUMNS]:
            width, height = _panel(picture, (x, y), top, boxes, texts)
            x, bottom = x + width + 2 * _PAD, max(bottom, y + height)
        y, right = bottom + 1.5 * _PAD, max(right, x - 2 * _PAD)
    for step in range(40):
        boxes.append(Box(_PAD + step * _BAR / 40, y, _BAR / 40 + 0.2, 10, colour((step + 0.5) / 40)))
    texts += [Text(_PAD, y + 24, "0", SMALL), Text(_PAD + _BAR, y + 24, f"{top:.3g}", SMALL, "end")]
    texts.append(Text(_PAD + _BAR + 10, y + 9, "attention weight", SMALL))
    right = max([right, *(t.x + _length(t.text, t.size) for t in texts if t.anchor == "start" and not t.turned)])
    return Figure(right + _PAD, y + 24 + _PAD, boxes, texts)


def _panel(
    picture: MapSlice, corner: tuple[float, float], top: float, boxes: list[Box], texts: list[Text]
) -> tuple[float, float]:
    """Draw one heat map from its upper left corner and return its width and height."""
    x, y = corner
    queries, keys = [_label(token) for token in picture.queries], [_label(token) for token in picture.keys]
    cell = float(np.clip(640 / max(len(keys), len(queries), 1), 11, 26))
    size = min(FONT, cell)
    left = x + max((_length(text, size) for text in queries), default=0) + 6
    first = y + 36 + max((_length(text, size) for text in keys), default=0) + 6
    entropy = f"entropy {picture.entropy:.2f} bits a row"
    texts += [Text(x, y + FONT, picture.title, strong=True), Text(x, y + FONT + 15, entropy, SMALL)]
    for column, text in enumerate(keys):
        texts.append(Text(left + (column + 0.5) * cell + size * 0.35, first - 5, text, size, turned=True))
    boxes.append(Box(left, first, cell * len(keys), cell * len(queries), colour(0)))
    for row, text in enumerate(queries):
        texts.append(Text(left - 5, first + (row + 0.5) * cell + size * 0.35, text, size, "end"))
        for column, weight in enumerate(picture.weights[row].tolist()):
            if not weight < 0.0005:
                place = (left + column * cell, first + row * cell, cell, cell)
                boxes.append(Box(*place, colour(weight / top), f"{text} ← {keys[column]}: {weight:.3f}"))
    width = max(left - x + cell * len(keys), _length(picture.title, FONT), _length(entropy, SMALL))
    return width, first - y + cell * len(queries)


def _label(token: str) -> str:
    return _cut(shown(token), _LONGEST)


def _cut(text: str, most: int) -> str:
    while cell_len(text) > most:
        text = text[:-2].rstrip("…") + "…" if len(text) > 2 else "…"
    return text


def _length(text: str, size: float) -> float:
    """Estimate the width of a text: fonts differ, and a little too much room harms nobody."""
    return cell_len(text) * size * 0.62


def to_svg(figure: Figure) -> str:
    """Return a figure as an SVG document: no scripts, nothing from elsewhere, every text escaped."""
    width, height = round(figure.width), round(figure.height)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, \'Noto Sans\', sans-serif" fill="#1b1f24">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for box in figure.boxes:
        where = f'x="{box.x:.2f}" y="{box.y:.2f}" width="{box.width:.2f}" height="{box.height:.2f}"'
        title = f"><title>{escape(box.title)}</title></rect>" if box.title else "/>"
        parts.append(f'<rect {where} fill="{box.fill}"{title}')
    for text in figure.texts:
        where = f'x="{text.x:.2f}" y="{text.y:.2f}" font-size="{text.size:g}" text-anchor="{text.anchor}"'
        where += f' transform="rotate(-90 {text.x:.2f} {text.y:.2f})"' if text.turned else ""
        where += ' font-weight="bold"' if text.strong else ""
        parts.append(f"<text {where}>{escape(text.text)}</text>")
    return "\n".join([*parts, "</svg>", ""])


def escape(text: str) -> str:
    """Return text that HTML and XML take as nothing but text; what XML cannot hold is named."""
    for sign, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("'", "&#39;")):
        text = text.replace(sign, name)
    return "".join(char if _is_xml(char) else f"U+{ord(char):04X}" for char in text)


def _is_xml(char: str) -> bool:
    """Return whether XML 1.0 may hold a character."""
    return char in "\t\n" or (char >= " " and not "\ud800" <= char <= "\udfff" and char not in "\ufffe\uffff")
