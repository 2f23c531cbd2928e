"""The lessons of ``attnkit explain`` as SVG, for slides and papers."""

from __future__ import annotations

from attnkit.plotting.curves import svg_plot
from attnkit.plotting.figure import Box, Figure, Text, to_svg
from attnkit.plotting.lessons import MaskLesson, PoolingLesson, PositionsLesson
from attnkit.plotting.lessons_terminal import label

_PAD, _CELL, _SMALL = 20.0, 26.0, 11.0
_SEES, _BLIND = "#0072b2", "#eef1f4"


def mask_svg(lesson: MaskLesson) -> str:
    """Draw the mask as squares."""
    title = "Causal mask" if lesson.pattern is None else f"Sparse pattern: {lesson.pattern}, size {lesson.size}"
    if lesson.pattern is not None and lesson.causal:
        title += ", causal"
    n, words = len(lesson.words), [label(word) for word in lesson.words]
    left, top = _PAD + 8.0 * max(map(len, words)) + 30, 76.0
    boxes, texts = [], [Text(_PAD, 26, title, 15, strong=True)]
    texts.append(Text(_PAD, 44, "row: the position that looks; column: the one looked at", _SMALL))
    for i, row in enumerate(lesson.mask):
        y = top + i * _CELL
        texts.append(Text(left - 8, y + 17, f"{words[i]} {i + 1}".strip(), 12, "end"))
        texts.append(Text(left + (i + 0.5) * _CELL, top - 8, str(i + 1), 12, "middle"))
        for j, sees in enumerate(row):
            said = f"{i + 1} {'sees' if sees else 'does not see'} {j + 1}"
            boxes.append(Box(left + j * _CELL + 1, y + 1, _CELL - 2, _CELL - 2, _SEES if sees else _BLIND, said))
    width = max(left + n * _CELL, 340.0) + _PAD
    return to_svg(Figure(width, top + n * _CELL + _PAD, boxes, texts))


def positions_svg(lesson: PositionsLesson) -> str:
    """Draw a table of positions as colours, from -1 (blue) over 0 (white) to 1 (orange)."""
    rows, columns = len(lesson.picture), len(lesson.picture[0])
    left, top, wide, high = 70.0, 76.0, 10.0, 8.0
    texts = [
        Text(_PAD, 26, f"Sinusoidal positions, {columns} numbers for each place", 15, strong=True),
        Text(_PAD, 44, "down: position; across: sine and cosine in turn, fast to slow", _SMALL),
    ]
    texts += [Text(left - 8, top + (i + 0.9) * high, str(i), _SMALL, "end") for i in range(0, rows, 10)]
    texts += [Text(left + (j + 0.5) * wide, top - 8, str(j), _SMALL, "middle") for j in range(0, columns, 8)]
    boxes = [
        Box(left + j * wide, top + i * high, wide, high, _between(value), f"PE({i}, {j}) = {value:.3f}")
        for i, row in enumerate(lesson.picture)
        for j, value in enumerate(row)
    ]
    below = top + rows * high + 18
    boxes += [Box(left + 4 * step, below, 4, 10, _between(step / 20 - 1)) for step in range(41)]
    texts += [Text(left - 8, below + 9, "-1", _SMALL, "end"), Text(left + 172, below + 9, "1", _SMALL)]
    return to_svg(Figure(left + columns * wide + _PAD, below + 10 + _PAD, boxes, texts))


def pooling_svg(lesson: PoolingLesson) -> str:
    """Draw points, true curve and fits."""
    return svg_plot(lesson.curves, "Kernel regression: y = 2 sin x + x^0.8 from noisy points")


def _between(value: float) -> str:
    """Return the colour of a number between -1 and 1."""
    end = (213, 94, 0) if value > 0 else (0, 114, 178)
    share = min(abs(value), 1.0)
    return "#" + "".join(f"{round(255 + (part - 255) * share):02x}" for part in end)
