"""Curves and points in one coordinate system, drawn in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

_MARGIN, _LINES = 7, 18
# 256-colour foregrounds of a terminal, apart for colour-blind eyes (Okabe and Ito 2008).
_COLOURS = (245, 252, 208, 39, 36, 178)


@dataclass(frozen=True)
class Curve:
    """One curve through the points (x, y), x rising; or the points alone."""

    name: str
    mark: str
    """The sign that draws it in a terminal."""
    x: Sequence[float]
    y: Sequence[float]
    points: bool = False


@dataclass(frozen=True)
class _Frame:
    """What part of the plane is shown."""

    left: float
    right: float
    low: float
    high: float

    @classmethod
    def around(cls, curves: Sequence[Curve]) -> _Frame:
        xs, ys = (
            np.concatenate([np.asarray(part, np.float64) for part in parts])
            for parts in zip(*((curve.x, curve.y) for curve in curves), strict=True)
        )
        wide, tall = float(np.ptp(xs)) or 1.0, float(np.ptp(ys)) or 1.0
        return cls(float(xs.min()), float(xs.min()) + wide, float(ys.min()) - tall / 40, float(ys.min()) + tall * 1.025)

    def across(self, x: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return 0 at the left edge to 1 at the right."""
        return (np.asarray(x, np.float64) - self.left) / (self.right - self.left)

    def down(self, y: Sequence[float] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return 0 at the upper edge to 1 at the lower."""
        return (self.high - np.asarray(y, np.float64)) / (self.high - self.low)


def character_plot(curves: Sequence[Curve], *, colour: bool, width: int = 80) -> str:
    """Draw curves with one sign each, later ones over earlier ones, with axes and a legend.

    Without ``colour`` only the curves' signs and ASCII are used.
    """
    frame, columns = _Frame.around(curves), width - _MARGIN - 1
    field = np.full((_LINES, columns), -1)
    places = frame.left + (np.arange(columns) + 0.5) / columns * (frame.right - frame.left)
    for number, curve in enumerate(curves):
        x, y = (curve.x, curve.y) if curve.points else (places, np.interp(places, curve.x, curve.y, np.nan, np.nan))
        inside = np.isfinite(np.asarray(y, np.float64))
        rows = np.clip(frame.down(y)[inside] * _LINES, 0, _LINES - 1).astype(int)
        field[rows, np.clip(frame.across(x)[inside] * columns, 0, columns - 1).astype(int)] = number
    labels = {int(float(frame.down([y])[0]) * _LINES): f"{y:g}" for y in _round_values(frame.low, frame.high)}
    lines = [f"{labels.get(n, ''):>{_MARGIN - 1}} |{_row(row, curves, colour)}" for n, row in enumerate(field)]
    lines.append(" " * _MARGIN + "+" + "-" * columns)
    lines.append(_ruler(frame, columns))
    legend = "   ".join(_painted(curve.mark, n, colour) + f" {curve.name}" for n, curve in enumerate(curves))
    return "\n".join([*lines, " " * (_MARGIN + 1) + legend])


def _row(numbers: NDArray[np.int64], curves: Sequence[Curve], colour: bool) -> str:
    runs = [(n, len(list(run))) for n, run in groupby(numbers.tolist())]
    if runs[-1][0] < 0:
        runs.pop()  # no spaces at the end of a line
    return "".join(" " * size if n < 0 else _painted(curves[n].mark * size, n, colour) for n, size in runs)


def _painted(marks: str, number: int, colour: bool) -> str:
    return f"\x1b[38;5;{_COLOURS[number % len(_COLOURS)]}m{marks}\x1b[0m" if colour else marks


def _ruler(frame: _Frame, columns: int) -> str:
    """Return the labels below the x axis, each centred on its place."""
    ruler = [" "] * (columns + _MARGIN + 8)
    for value in _round_values(frame.left, frame.right):
        label = f"{value:g}"
        at = _MARGIN + 1 + min(int(float(frame.across([value])[0]) * columns), columns - 1) - (len(label) - 1) // 2
        ruler[at : at + len(label)] = label
    return "".join(ruler).rstrip()


def _round_values(low: float, high: float) -> list[float]:
    """Return some four to nine round numbers between two."""
    step = 10.0 ** np.floor(np.log10((high - low) / 2))
    step = next(size * step for size in (0.2, 0.5, 1.0, 2.0, 5.0) if (high - low) / (size * step) <= 9)
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [round(n * step, 12) for n in range(first, last + 1)]
