"""Plots of curves and points as terminal text."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from attnkit.plotting.terminal import paint

_MARGIN, _LINES = 7, 18
# 256-colour foregrounds, distinguishable by colour-blind readers (Okabe and Ito 2008).
_COLOURS = (245, 252, 208, 39, 36, 178)


@dataclass(frozen=True)
class Curve:
    """A curve through points (x, y) with increasing x, or the points alone."""

    name: str
    mark: str  #: character that draws it in a terminal
    x: Sequence[float]
    y: Sequence[float]
    points: bool = False


MAX_POINTS = 400  #: maximum points of a curve that grows


class GrowingCurve:
    """A curve of any number of points, of which it keeps at most ``MAX_POINTS``.

    Beyond them, neighbours are averaged and every further point is the mean of as many values.

    >>> curve = GrowingCurve()
    >>> for step in range(1000):
    ...     curve.add(step, 2.0)
    >>> len(curve.x) <= MAX_POINTS, curve.y[0], curve.x[-1]
    (True, 2.0, 999)
    """

    def __init__(self) -> None:
        self.x: list[float] = []
        self.y: list[float] = []
        self._every, self._n, self._sum = 1, 0, 0.0

    def add(self, x: float, y: float) -> None:
        """Add a point; ignore it if ``y`` is not finite."""
        if not np.isfinite(y):
            return
        if not self._n:
            self.x.append(x)
            self.y.append(y)
        # The last point covers values up to ``x`` and is their mean so far.
        self._n, self._sum = self._n + 1, self._sum + y
        self.x[-1], self.y[-1] = x, self._sum / self._n
        if self._n == self._every:
            self._n, self._sum = 0, 0.0
            if len(self.x) == MAX_POINTS:
                self._every *= 2
                self.x = self.x[1::2]
                self.y = [(a + b) / 2 for a, b in zip(self.y[::2], self.y[1::2], strict=True)]


def character_plot(curves: Sequence[Curve], *, colour: bool, width: int = 80) -> str:
    """Plot curves with axes and a legend; later curves are drawn over earlier ones.

    Without ``colour``, the plot is ASCII apart from the marks and names of the curves.
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
    labels = {int((high - y) / down * _LINES): f"{y:g}" for y in round_values(low, high)}
    lines = []
    for n, row in enumerate(field):
        runs = [(number, len(list(run))) for number, run in groupby(row.tolist())]
        if runs[-1][0] < 0:
            runs.pop()  # no trailing spaces
        drawn = (" " * size if i < 0 else _painted(curves[i].mark * size, i, colour) for i, size in runs)
        lines.append(f"{labels.get(n, ''):>{_MARGIN - 1}} |{''.join(drawn)}")
    ruler = [" "] * (columns + _MARGIN + 8)  # labels below the x axis, each centred on its value
    for value in round_values(left, left + across):
        text = f"{value:g}"
        at = _MARGIN + 1 + min(int((value - left) / across * columns), columns - 1) - (len(text) - 1) // 2
        ruler[at : at + len(text)] = text
    lines += [" " * _MARGIN + "+" + "-" * columns, "".join(ruler).rstrip()]
    legend = "   ".join(_painted(curve.mark, n, colour) + f" {curve.name}" for n, curve in enumerate(curves))
    return "\n".join([*lines, " " * (_MARGIN + 1) + legend])


def _painted(marks: str, number: int, colour: bool) -> str:
    return paint(marks, f"38;5;{_COLOURS[number % len(_COLOURS)]}", colour)


def round_values(low: float, high: float) -> list[float]:
    """Return about four to nine round numbers from ``low`` to ``high``."""
    step = 10.0 ** np.floor(np.log10((high - low) / 2))
    step = next(size * step for size in (0.2, 0.5, 1.0, 2.0, 5.0) if (high - low) / (size * step) <= 9)
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [round(n * step, 12) for n in range(first, last + 1)]
