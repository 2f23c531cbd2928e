"""Figures of attention maps, masks, positions and curves as PNG, PDF or SVG.

Figures are drawn by matplotlib; equal data give identical files. SVG keeps text as text, rendered in the fonts of the
viewer. PNG and PDF use DejaVu Sans and, for characters missing from it, any installed font that has them.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from rich.cells import cell_len

from attnkit.errors import DataError, UsageError
from attnkit.plotting.attention_maps import RAMP, MapSlice, display_text
from attnkit.plotting.curves import Curve
from attnkit.plotting.lessons_terminal import MaskLesson, PositionsLesson, label
from attnkit.plotting.terminal import truncate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PictureFormat = Literal["svg", "png", "pdf"]
Size = tuple[float, float]  #: width and height in layout units
MAX_PIXELS = 100_000_000  #: maximum pixels of a PNG, with four bytes of memory each
MAX_COLUMNS = 4  #: maximum panels per row
_INCH, _DENSITY = 96.0, 192  #: layout units (CSS pixels, from the upper left) and PNG pixels per inch
_FONT, _SMALL = 12.0, 10.0  #: text heights in layout units
_PAD, _BAR = 16.0, 160.0
_LONGEST = 24  #: maximum columns of a token label; longer labels are truncated
_FONT_PACKAGES = ("mplfonts", "matplotlib_fontja")
"""Packages with Chinese and Japanese fonts; only their font files are read, without an import."""
# Distinguishable by colour-blind readers (Okabe and Ito 2008).
CURVE_COLOURS = ("#7a7a7a", "#111111", "#d55e00", "#0072b2", "#009e73", "#e69f00")
_METADATA: dict[PictureFormat, dict[str, Any]] = {
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


def attention_picture(slices: Sequence[MapSlice], format: PictureFormat, heading: str = "") -> bytes:
    """Draw heat maps in rows of at most ``MAX_COLUMNS``, with a shared colour scale.

    Raises:
        DataError: the PNG would exceed ``MAX_PIXELS``.
        UsageError: matplotlib is not installed.
    """
    top = max((float(np.max(s.weights, where=np.isfinite(s.weights), initial=0.0)) for s in slices), default=0.0) or 1.0
    panels, y, width = [], _PAD + 48, 2 * _PAD + _BAR + 120
    for start in range(0, len(slices), MAX_COLUMNS):
        x, bottom = _PAD, y  # upper left corner of the panel
        for one in slices[start : start + MAX_COLUMNS]:
            sides = (one.queries, one.keys)
            rows, columns = ([truncate(display_text(token), _LONGEST) for token in side] for side in sides)
            cell = float(np.clip(640 / max(len(rows), len(columns), 1), 11, 26))
            size = min(_FONT, cell)
            left = max((_length(text, size) for text in rows), default=0.0) + 8
            above = 44 + max((_length(text, size) for text in columns), default=0.0)
            panels.append((one, rows, columns, x, y, left, above, cell))
            x += max(left + cell * len(columns), _length(one.title, _FONT), 150.0) + 2 * _PAD
            bottom = max(bottom, y + (above + cell * len(rows)))
        y, width = bottom + 1.5 * _PAD, max(width, x - _PAD)
    height = y + 60
    title = truncate(display_text(heading), 120) if heading else ""
    axes = "; ".join(dict.fromkeys(one.axes for one in slices))
    width = max(width, *(_PAD * 2 + _length(text, size) for text, size in ((title, 14.0), (axes, _SMALL))))

    def draw(figure: Figure) -> None:
        _write(figure, _PAD, _PAD + _FONT, title, 14.0, weight="bold")
        _write(figure, _PAD, _PAD + 32, axes, _SMALL)
        mesh = None
        for one, rows, columns, x, y, left, above, cell in panels:
            _write(figure, x, y + _FONT, one.title, _FONT, weight="bold")
            _write(figure, x, y + _FONT + 15, f"entropy {one.entropy:.2f} bits per row", _SMALL)
            grid = _axes(figure, x + left, y + above, cell * len(columns), cell * len(rows))
            mesh = _cells(grid, one.weights, RAMP, (0, top))
            _tick_labels(grid, rows, columns, min(_FONT, cell), rotation=90)
        if mesh is not None:
            _colour_bar(mesh, _axes(figure, _PAD, height - 44, _BAR, 10), {0: "0", top: f"{top:.3g}"})
            _write(figure, _PAD + _BAR + 16, height - 35, "attention weight", _SMALL)

    texts = [title, axes, *(token for _, rows, columns, *_ in panels for token in (*rows, *columns))]
    return _render(draw, (width, height), format, texts)


def mask_picture(lesson: MaskLesson, format: PictureFormat) -> bytes:
    """Draw the attention mask of a lesson as a grid of squares."""
    title = "Causal mask" if lesson.pattern is None else f"Sparse pattern: {lesson.pattern}, size {lesson.size}"
    if lesson.pattern is not None and lesson.causal:
        title += ", causal"
    n, words = len(lesson.words), [label(word) for word in lesson.words]
    left, cell = _PAD + 30 + max((_length(word, _FONT) for word in words), default=0.0), 26.0
    size = max(left + n * cell, 360.0) + _PAD, 84 + n * cell + _PAD

    def draw(figure: Figure) -> None:
        _write(figure, _PAD, 26, title, 15.0, weight="bold")
        _write(figure, _PAD, 46, "rows: query positions; columns: key positions", _SMALL)
        axes = _axes(figure, left, 84, n * cell, n * cell)
        _cells(axes, lesson.mask, ("#eef1f4", "#0072b2"), (0, 1), edge=2.0)
        rows = [f"{word} {i + 1}".strip() for i, word in enumerate(words)]
        _tick_labels(axes, rows, [str(i + 1) for i in range(n)], _FONT, rotation=0)

    return _render(draw, size, format, [title, *words])


def positions_picture(lesson: PositionsLesson, format: PictureFormat) -> bytes:
    """Draw positional encodings as a heat map: -1 blue, 0 white, 1 orange."""
    table = np.asarray(lesson.picture, np.float64)  # (positions, D)
    rows, columns = table.shape
    left, top, wide, high = 70.0, 84.0, 10.0, 8.0
    size = left + max(columns * wide, 320.0) + _PAD, top + rows * high + 56 + _PAD

    def draw(figure: Figure) -> None:
        _write(figure, _PAD, 26, f"Sinusoidal positions, {columns} dimensions", 15.0, weight="bold")
        _write(figure, _PAD, 46, "rows: positions; columns: alternating sine and cosine, fast to slow", _SMALL)
        axes = _axes(figure, left, top, columns * wide, rows * high)
        mesh = _cells(axes, table, ("#0072b2", "#ffffff", "#d55e00"), (-1, 1))
        axes.set_yticks(np.arange(0, rows, 10) + 0.5, [str(i) for i in range(0, rows, 10)])
        axes.set_xticks(np.arange(0, columns, 8) + 0.5, [str(i) for i in range(0, columns, 8)])
        _colour_bar(mesh, _axes(figure, left, size[1] - 48, 168, 10), {-1: "-1", 0: "0", 1: "1"})

    return _render(draw, size, format, [])


def curves_picture(curves: Sequence[Curve], title: str, format: PictureFormat) -> bytes:
    """Plot curves and points on shared axes, with a legend below."""
    size = 800.0, 470.0 + 20 * len(curves)

    def draw(figure: Figure) -> None:
        axes = _axes(figure, 60, 36, 716, 390)
        axes.set_title(title, loc="left", fontsize=_points(14), fontweight="bold", parse_math=False)
        for number, curve in enumerate(curves):
            paint, name = CURVE_COLOURS[number % len(CURVE_COLOURS)], curve.name.replace("$", r"\$")
            style: dict[str, Any] = {"linestyle": "", "marker": "o", "markersize": 4} if curve.points else {"lw": 1.6}
            axes.plot(curve.x, curve.y, color=paint, label=name, **style)
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.06), frameon=False, fontsize=_points(_FONT))

    return _render(draw, size, format, [title, *(curve.name for curve in curves)])


def missing_glyphs(texts: Iterable[str]) -> list[str]:
    """Return the characters missing from all installed fonts (irrelevant for SVG)."""
    check_installed()
    return _families(frozenset("".join(texts)))[1]


def _cells(axes: Axes, values: ArrayLike, colours: Sequence[str], limits: tuple[float, float], edge: float = 0) -> Any:
    """Draw a matrix (rows, columns) as cells, row 0 on top; non-finite values are red."""
    from matplotlib.colors import LinearSegmentedColormap

    colour_map = LinearSegmentedColormap.from_list("attnkit", list(colours)).with_extremes(bad="#c0392b")
    style: dict[str, Any] = {"edgecolors": "white", "linewidth": edge * 0.75} if edge else {}
    matrix = np.ma.masked_invalid(np.asarray(values, np.float64))
    mesh = axes.pcolormesh(matrix, cmap=colour_map, vmin=limits[0], vmax=limits[1], **style)
    axes.invert_yaxis()
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=_points(_SMALL))
    for side in axes.spines.values():
        side.set_visible(False)
    return mesh


def _tick_labels(axes: Axes, rows: Sequence[str], columns: Sequence[str], size: float, rotation: float) -> None:
    # parse_math=False: tokens may contain dollar signs.
    style: dict[str, Any] = {"fontsize": _points(size), "parse_math": False}
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows, **style)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=rotation, **style)


def _colour_bar(mesh: Any, axes: Axes, ticks: Mapping[float, str]) -> None:
    bar = axes.figure.colorbar(mesh, cax=axes, orientation="horizontal")
    bar.set_ticks(list(ticks), labels=list(ticks.values()), fontsize=_points(_SMALL))
    bar.outline.set_visible(False)


def _axes(figure: Figure, x: float, y: float, width: float, height: float) -> Axes:
    wide, tall = (float(inches) * _INCH for inches in figure.get_size_inches())
    return figure.add_axes((x / wide, 1 - (y + height) / tall, width / wide, height / tall))


def _write(figure: Figure, x: float, y: float, text: str, size: float, weight: str = "normal") -> None:
    wide, tall = (float(inches) * _INCH for inches in figure.get_size_inches())
    figure.text(x / wide, 1 - y / tall, text, fontsize=_points(size), fontweight=weight, parse_math=False)


def _points(size: float) -> float:
    return size * 72 / _INCH


def _length(text: str, size: float) -> float:
    """Estimate the width of a text generously, since fonts differ."""
    return cell_len(text) * size * 0.64


def check_installed() -> None:
    if find_spec("matplotlib") is None:
        raise UsageError("pictures need matplotlib", help='pip install "attnkit[plot]"')


def _render(draw: Callable[[Figure], None], size: Size, format: PictureFormat, texts: Iterable[str]) -> bytes:
    """Render a figure and return the content of its file."""
    check_installed()
    if format == "png" and size[0] * size[1] * (_DENSITY / _INCH) ** 2 > MAX_PIXELS:
        raise DataError("the figure would be too large", help="choose one --layer and one --head, or write --svg")
    import matplotlib
    from matplotlib.figure import Figure

    families = _families(frozenset("".join(texts)))[0]
    style: Any = {"font.family": families, "svg.fonttype": "none", "svg.hashsalt": "attnkit", "pdf.fonttype": 42}
    content = BytesIO()
    logger = logging.getLogger("matplotlib.font_manager")
    level = logger.level
    with matplotlib.rc_context(style), warnings.catch_warnings():
        # Missing glyphs and bold faces; the caller reports missing characters (``missing_glyphs``).
        warnings.simplefilter("ignore", UserWarning)
        logger.setLevel(logging.ERROR)
        figure = Figure(figsize=(size[0] / _INCH, size[1] / _INCH))
        draw(figure)
        figure.savefig(content, format=format, dpi=_DENSITY, metadata=_METADATA[format])
        logger.setLevel(level)
    return content.getvalue()


@lru_cache(maxsize=64)
def _families(characters: frozenset[str]) -> tuple[list[str], list[str]]:
    """Return fonts that cover the characters, and the characters that none covers."""
    from matplotlib import font_manager

    families, missing = ["DejaVu Sans"], set(characters)
    missing -= _covered(font_manager.findfont("DejaVu Sans"), missing)
    fonts = [(entry.name, entry.fname) for entry in font_manager.fontManager.ttflist]
    fonts = sorted({font for font in fonts if not font[0].startswith("Last Resort")})
    for package in filter(None, map(find_spec, _FONT_PACKAGES)):
        for folder in package.submodule_search_locations or ():
            fonts += [("", str(path)) for path in sorted((Path(folder) / "fonts").glob("*.[to]tf"))]
    for name, path in fonts:
        if not missing:
            break
        if found := _covered(path, missing):
            if not name:
                font_manager.fontManager.addfont(path)
                name = font_manager.FontProperties(fname=path).get_name()
            families.append(name)
            missing -= found
    return families, sorted(missing)


def _covered(path: str, characters: Iterable[str]) -> set[str]:
    """Return the characters that a font file covers."""
    from matplotlib import ft2font

    try:
        font = ft2font.FT2Font(path)
    except (OSError, RuntimeError):
        return set()
    return {char for char in characters if font.get_char_index(ord(char))}
