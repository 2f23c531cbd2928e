"""Charts as HTML fragments with SVG, for notebooks: no script, no style sheet.

Text and axes have the colour of the surrounding text, so that charts are readable on light and dark pages alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from attnkit.plotting.attention_maps import display_text
from attnkit.plotting.curves import Curve, round_values
from attnkit.plotting.html import escape

COLOURS = ("#2f7fbf", "#d55e00", "#0a8f66", "#b065b0", "#98750a", "#7d7d7d")
"""Colours of curves, with a contrast of at least 3 to white and to black pages."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 54.0, 10.0, 8.0, 34.0  # margins in pixels
_FAINT = 'stroke="currentColor" stroke-opacity="0.18"'


def line_chart(curves: Sequence[Curve], *, x_label: str, title: str, width: float = 560, height: float = 210) -> str:
    """Return a chart of curves and points; a line has gaps where it is not finite.

    >>> chart = line_chart([Curve("loss", "", [1, 2], [3.0, 2.5])], x_label="step", title="Loss")
    >>> chart.count("<polyline"), "<script" in chart
    (1, False)
    """
    finite = [(x, y) for curve in curves for x, y in zip(curve.x, curve.y, strict=True) if np.isfinite([x, y]).all()]
    if not finite:
        return ""
    (left, low), (right, high) = np.min(finite, 0).tolist(), np.max(finite, 0).tolist()
    if right <= left:
        left, right = left - 0.5, right + 0.5
    pad = 0.04 * (high - low) or 0.05 * abs(high) or 1.0
    low, high = low - pad, high + pad

    def place(x: float, y: float) -> tuple[float, float]:
        across, up = (x - left) / (right - left), (y - low) / (high - low)
        return _LEFT + across * (width - _LEFT - _RIGHT), height - _BOTTOM - up * (height - _TOP - _BOTTOM)

    parts = []
    for value in round_values(low, high):
        y = place(left, value)[1]
        parts.append(f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" {_FAINT}/>')
        parts.append(_text(_LEFT - 6, y + 4, f"{value:,g}", "end"))
    for value in round_values(left, right):
        x = place(value, low)[0]
        parts.append(_text(x, height - _BOTTOM + 15, f"{value:,g}", "middle"))
    parts.append(_text((_LEFT + width - _RIGHT) / 2, height - 4, x_label, "middle"))
    for number, curve in enumerate(curves):
        parts += _drawn(curve, COLOURS[number % len(COLOURS)], place)
    box = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    svg = f'<svg {box} role="img" aria-label="{escape(display_text(title))}" style="max-width:100%;height:auto">'
    return f"{svg}{''.join(parts)}</svg>{legend([curve.name for curve in curves])}"


MAX_DOTS, MAX_LABELS = 3000, 90  #: maximum number of words of a map, and of words that are written
_LINE, _LETTER = 13.0, 6.4  # height and width of a label in pixels


def scatter(points: NDArray[np.float64], words: Sequence[str], title: str, *, width: float = 640) -> str:
    """Return a map of words at points (V, 2), the first ones labelled, equal scales.

    A word is written unless it would cover another one; the names of all words are shown on hovering.

    >>> scatter(np.array([[0.0, 0.0], [1.0, 1.0]]), ["<a>", "b"], "Words").count("&lt;a&gt;")
    2
    """
    height, margin = 0.66 * width, 24.0
    places = np.asarray(points[:MAX_DOTS], np.float64)
    low, spans = places.min(0), np.maximum(np.ptp(places, axis=0), 1e-12)
    scale = float(min((width - 2 * margin) / spans[0], (height - 2 * margin) / spans[1]))
    shift = (np.array([width, height]) - scale * spans) / 2  # centred
    places = (places - low) * scale + shift
    places[:, 1] = height - places[:, 1]  # the second axis points upwards
    dots, labels = [], []
    taken: list[tuple[float, float, float, float]] = []
    for (x, y), word in zip(places.tolist(), words, strict=False):
        name = escape(display_text(word))
        dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2"><title>{name}</title></circle>')
        half = cell_len(word) * _LETTER / 2
        box = (x - half, y - 5 - _LINE, x + half, y - 5)
        inside = box[0] > 0 and box[1] > 0 and box[2] < width
        free = all(box[2] < a or box[0] > c or box[3] < b or box[1] > d for a, b, c, d in taken)
        if len(taken) < MAX_LABELS and inside and free:
            taken.append(box)
            labels.append(_text(x, y - 6, display_text(word), "middle"))
    box_of = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    head = f'<svg {box_of} role="img" aria-label="{escape(display_text(title))}" style="max-width:100%;height:auto">'
    return f'{head}<g fill="{COLOURS[0]}" fill-opacity="0.75">{"".join(dots)}</g>{"".join(labels)}</svg>'


def legend(names: Sequence[str]) -> str:
    """Return the names of curves or groups beside their colours."""
    swatch = "display:inline-block;width:0.8em;height:0.8em;border-radius:2px;margin-right:0.4em"
    items = (
        f'<span style="margin-right:1.4em;white-space:nowrap"><span style="{swatch};background:'
        f'{COLOURS[number % len(COLOURS)]}"></span><bdi>{escape(display_text(name))}</bdi></span>'
        for number, name in enumerate(names)
    )
    return f'<div style="font-size:12px;padding-left:{_LEFT:g}px">{"".join(items)}</div>'


def _drawn(curve: Curve, colour: str, place: object) -> list[str]:
    """Return the SVG elements of a curve: lines through finite points, or dots."""
    assert callable(place)
    found = []
    pairs = list(zip(curve.x, curve.y, strict=True))
    for finite, run in groupby(pairs, lambda pair: bool(np.isfinite(pair).all())):
        if not finite:
            continue
        points = [place(x, y) for x, y in run]
        if not curve.points and len(points) > 1:
            joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            found.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        else:
            found += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return found


def _text(x: float, y: float, text: str, anchor: str) -> str:
    style = f'font-size="11" fill="currentColor" fill-opacity="0.8" text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
