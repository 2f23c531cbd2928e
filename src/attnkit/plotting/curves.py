"""Curves and points in one coordinate system, drawn in a terminal."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from attnkit.plotting.terminal import paint

_MARGIN, _LINES = 7, 18
# 256-colour foregrounds of a terminal, apart for colour-blind eyes (Okabe and Ito 2008).
_COLOURS = (245, 252, 208, 39, 36, 178)


@dataclass(frozen=True)
class Curve:
    """One curve through the points (x, y), x rising; or the points alone."""

    name: str
    mark: str  #: the sign that draws it in a terminal
    x: Sequence[float]
    y: Sequence[float]
    points: bool = False


def character_plot(curves: Sequence[Curve], *, colour: bool, width: int = 80) -> str:
    """Draw curves with one sign each, later ones over earlier ones, with axes and a legend.

    Without ``colour`` only the curves' signs and ASCII are used.
    """
    xs, ys = (np.concatenate([np.asarray(getattr(curve, axis), np.float64) for curve in curves]) for axis in "xy")
    tall = float(np.ptp(ys)) or 1.0
    left, low, high = float(xs.min()), float(ys.min()) - tall / 40, float(ys.min()) + tall * 1.025
    across, down, columns = float(np.ptp(xs)) or 1.0, high - low, width - _MARGIN - 1
    field = np.full((_LINES, columns), -1)
    places = left + (np.arange(columns) + 0.5) / columns * across
    for number, curve in enumerate(curves):
        x, y = (curve.x, curve.y) if curve.points else (places, np.interp(places, curve.x, curve.y, np.nan, np.nan))
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        inside = np.isfinite(y)
        rows = np.clip((high - y[inside]) / down * _LINES, 0, _LINES - 1).astype(int)
        field[rows, np.clip((x - left)[inside] / across * columns, 0, columns - 1).astype(int)] = number
    labels = {int((high - y) / down * _LINES): f"{y:g}" for y in _round_values(low, high)}
    lines = []
    for n, row in enumerate(field):
        runs = [(number, len(list(run))) for number, run in groupby(row.tolist())]
        if runs[-1][0] < 0:
            runs.pop()  # no spaces at the end of a line
        drawn = (" " * size if i < 0 else _painted(curves[i].mark * size, i, colour) for i, size in runs)
        lines.append(f"{labels.get(n, ''):>{_MARGIN - 1}} |{''.join(drawn)}")
    ruler = [" "] * (columns + _MARGIN + 8)  # labels below the x axis, each centred on its place
    for value in _round_values(left, left + across):
        text = f"{value:g}"
        at = _MARGIN + 1 + min(int((value - left) / across * columns), columns - 1) - (len(text) - 1) // 2
        ruler[at : at + len(text)] = text
    lines += [" " * _MARGIN + "+" + "-" * columns, "".join(ruler).rstrip()]
    legend = "   ".join(_painted(curve.mark, n, colour) + f" {curve.name}" for n, curve in enumerate(curves))
    return "\n".join([*lines, " " * (_MARGIN + 1) + legend])


def _painted(marks: str, number: int, colour: bool) -> str:
    return paint(marks, f"38;5;{_COLOURS[number % len(_COLOURS)]}", colour)


def _round_values(low: float, high: float) -> list[float]:
    """Return some four to nine round numbers between two."""
    step = 10.0 ** np.floor(np.log10((high - low) / 2))
    step = next(size * step for size in (0.2, 0.5, 1.0, 2.0, 5.0) if (high - low) / (size * step) <= 9)
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [round(n * step, 12) for n in range(first, last + 1)]
