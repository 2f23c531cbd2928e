"""The lessons of ``attnkit explain``: their numbers as data, and as text 80 columns wide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from attnkit.plotting.curves import Curve, character_plot
from attnkit.plotting.terminal import attention_map


@dataclass(frozen=True)
class MaskLesson:
    """Which positions look at which."""

    words: Sequence[str]
    pattern: str | None
    """The name of a sparse pattern; None for all pairs."""
    size: int
    """Of the pattern."""
    n_global: int
    """Of the pattern."""
    causal: bool
    mask: Sequence[Sequence[bool]]
    """A row for each word that looks, a column for each that it looks at; True = may look."""
    weights: Sequence[Sequence[float]]
    """What softmax gives under this mask where all scores are equal."""
    pairs: Sequence[tuple[int, int]]
    """Lengths, and how many pairs the mask leaves of a sequence as long."""


@dataclass(frozen=True)
class PositionsLesson:
    """Sinusoidal positions, and what attention is without any."""

    table: Sequence[Sequence[float]]
    """A row for each position."""
    shift: int
    angles: Sequence[float]
    """By which a shift turns each pair of sine and cosine, in radians."""
    matrix: Sequence[Sequence[float]]
    """M with PE(pos + shift) = M PE(pos)."""
    errors: Mapping[int, float]
    """Position -> the largest |PE(pos + shift) - M PE(pos)|."""
    words: Sequence[str]
    order: Sequence[int]
    """Where the words of the shuffled sentence stood."""
    moved: Mapping[str, Sequence[float]]
    """Kind of positions -> for each word of the sentence, the largest difference between its vector in the sentence
    and its vector in the shuffled one."""
    picture: Sequence[Sequence[float]]
    """A larger table, for paper."""


@dataclass(frozen=True)
class Fit:
    """One way to predict y from x."""

    name: str
    w: float | None
    error: float
    """Mean squared difference from the true curve."""
    effective_points: float
    """e to the entropy of the weights, mean over places."""


@dataclass(frozen=True)
class PoolingLesson:
    """Kernel regression: points, the curve they come from, and the curves found."""

    curves: Sequence[Curve]
    fits: Sequence[Fit]


_LONGEST = 12
"""Columns of a word."""
_SEES, _STRONG, _WARM, _COLD = "48;5;30;38;5;231", "1", "38;5;208", "38;5;39"

PATTERN_WORDS = {
    None: "Every position sees every other.",
    "window": "Every position sees its neighbours, {size} to each side, and itself.",
    "strided": "Every position sees what is less than {size} away, and beyond that one in {size}.",
    "block": "The sequence is cut into blocks of {size}; every position sees its own block.",
    "global": "Every position sees {size} neighbours to each side and itself; the first {n_global}\n"
    "  see all and are seen by all.",
}


def mask_text(lesson: MaskLesson, colour: bool) -> str:
    """Draw who may look at whom, and what the weights become."""
    return "\n".join(_mask(lesson, colour))


def _mask(lesson: MaskLesson, colour: bool) -> Iterator[str]:
    said = PATTERN_WORDS[lesson.pattern].format(size=lesson.size, n_global=lesson.n_global)
    title = "The causal mask" if lesson.pattern is None else f"The sparse pattern '{lesson.pattern}'"
    yield _bold(f"{title}: who may look at whom", colour)
    yield ""
    yield "  A row is the position that looks, a column the one it looks at."
    if lesson.pattern is not None:
        yield f"  {said}"
    if lesson.causal and lesson.pattern is not None:
        yield "  Nobody sees a later position."
    yield ""
    yield from _grid(lesson, colour)
    yield ""
    yield "  # may look   . may not: the weight is exactly 0"
    yield ""
    if lesson.pattern is None:
        yield from _why_causal(lesson, colour)
    else:
        yield from _why_sparse(lesson)


def _grid(lesson: MaskLesson, colour: bool) -> Iterator[str]:
    labels = [f"{n:>2} {label(word)}".rstrip() for n, word in enumerate(lesson.words, 1)]
    margin = max(map(cell_len, labels)) + 2
    yield " " * margin + "".join(f"{n:>3}" for n in range(1, len(labels) + 1))
    for text, row in zip(labels, lesson.mask, strict=True):
        cells = "".join("  " + _painted("#", _SEES, colour) if sees else "  ." for sees in row)
        yield "  " + set_cell_size(text, margin - 2) + cells


def _why_causal(lesson: MaskLesson, colour: bool) -> Iterator[str]:
    yield "  A decoder writes one word after the other. In training the whole sentence is"
    yield "  known, and all its words are predicted at once: each from the words before it."
    yield "  The mask hides the words that are not written yet, or the model would learn to"
    yield "  copy them. A masked token's score becomes minus infinity before the softmax,"
    yield "  and e to minus infinity is 0."
    yield ""
    yield _bold("Weights in percent where all scores are equal", colour)
    yield ""
    words = [str(n) for n in range(1, len(lesson.words) + 1)]
    drawn = attention_map(lesson.weights, words, [label(word) for word in lesson.words], colour=colour, width=76)
    yield from (f"  {line}".rstrip() for line in drawn.splitlines())
    yield ""
    yield "  Each row sums to 100, up to rounding: the first word can only look at itself,"
    yield "  the last one shares its attention among all."


def _why_sparse(lesson: MaskLesson) -> Iterator[str]:
    yield "  Attention compares pairs of positions, and all pairs grow with the square of"
    yield "  the length. A pattern computes some pairs only; what it leaves out is never"
    yield "  stored. Several layers let news travel further than one pattern reaches."
    yield ""
    yield f"  {'positions':>10}  {'all pairs':>14}  {'in the pattern':>14}  {'share':>8}"
    for length, n in lesson.pairs:
        yield f"  {length:>10,}  {length**2:>14,}  {n:>14,}  {n / length**2:>8.2%}"


def positions_text(lesson: PositionsLesson, colour: bool) -> str:
    """Draw the table of positions, its shift as a linear map, and what shuffling does without positions."""
    return "\n".join([*_table(lesson, colour), "", *_shift(lesson, colour), "", *_shuffled(lesson, colour)])


def _table(lesson: PositionsLesson, colour: bool) -> Iterator[str]:
    width = len(lesson.table[0])
    yield _bold("Sinusoidal positions: a vector for each place, added to the word's vector", colour)
    yield ""
    yield f"  PE(pos, 2i) = sin(pos / 10000^(2i/{width})), PE(pos, 2i+1) = cos(pos / 10000^(2i/{width}))"
    yield f"  {width} numbers here (a real model has hundreds): pairs of a sine and a cosine, the"
    yield "  first pair turning fast, each next one more slowly."
    yield ""
    yield "   pos" + "".join(f"{name:>8}" for name in ("sin", "cos") * (width // 2))
    for pos, row in enumerate(lesson.table):
        yield f"  {pos:>4}" + "".join(_signed(f"{value:8.3f}", value, colour) for value in row)


def _shift(lesson: PositionsLesson, colour: bool) -> Iterator[str]:
    k = lesson.shift
    yield _bold(f"A shift is a linear map: PE(pos + {k}) = M PE(pos), with the same M for every pos", colour)
    yield ""
    yield f"  M turns each pair (sin, cos) by {k} times the pair's own angle:"
    yield ""
    for i, angle in enumerate(lesson.angles):
        (a, b), (c, d) = (lesson.matrix[2 * i + row][2 * i : 2 * i + 2] for row in (0, 1))
        yield f"    pair {i + 1}  angle {angle:8.4f}   ( {a:7.4f} {b:7.4f} )"
        yield f"    {'':6}  {'':14}   ( {c:7.4f} {d:7.4f} )"
    yield ""
    yield f"  {'pos':>8}   largest difference between PE(pos + {k}) and M PE(pos)"
    for pos, error in lesson.errors.items():
        yield f"  {pos:>8}   {_small(error)}"
    yield ""
    yield f'  So "{k} places further on" is one and the same linear map wherever a word'
    yield "  stands, and a linear map is what a layer can learn."


def _shuffled(lesson: PositionsLesson, colour: bool) -> Iterator[str]:
    yield _bold("Without positions, shuffled words give shuffled, otherwise equal, vectors", colour)
    yield ""
    words = [label(word) for word in lesson.words]
    yield from _folded("  sentence: ", words)
    yield from _folded("  shuffled: ", [words[i] for i in lesson.order])
    yield ""
    yield "  An encoder (2 layers, 4 heads, random weights) reads both. For each word, the"
    yield "  largest difference between its two vectors, one from each sentence:"
    yield ""
    names = list(lesson.moved)
    yield f"  {'word':<{_LONGEST}}" + "".join(f"{name:>16}" for name in names)
    for n, word in enumerate(words):
        yield "  " + set_cell_size(word, _LONGEST) + "".join(f"{_small(lesson.moved[name][n]):>16}" for name in names)
    yield ""
    yield "  Without positions the differences are rounding alone: the model cannot tell"
    yield "  one order from another. With positions a vector depends on its word's place."


def pooling_text(lesson: PoolingLesson, colour: bool) -> str:
    """Draw points, true curve and fits, with their errors."""
    n_points = len(lesson.curves[0].x)
    lines = [
        _bold("Kernel regression: attention before it had the name (Nadaraya, Watson 1964)", colour),
        "",
        f"  {n_points} points lie about y = 2 sin x + x^0.8, with noise. A curve through them:",
        "  at x, take the mean of all y, each weighted by how near its own x lies. That",
        "  is attention: x is the query, the points' x are keys, their y are values, and",
        "",
        "    weights = softmax( -((x - x_i) w)^2 / 2 ),   curve(x) = sum of weights y_i",
        "",
        character_plot(lesson.curves, colour=colour),
        "",
        f"  {'':<28}{'w':>8}{'squared error':>16}{'points that count':>20}",
    ]
    for fit in lesson.fits:
        w = "-" if fit.w is None else f"{fit.w:.2f}"
        lines.append(f"  {fit.name:<28}{w:>8}{fit.error:>16.4f}{fit.effective_points:>20.1f}")
    return "\n".join(
        [
            *lines,
            "",
            "  Errors are squared distances from the true curve; how many points count is e",
            "  to the entropy of the weights; both are means over the curve. With w = 1 many",
            "  points count, near and far, and the curve is too flat. w was learned from the",
            "  points alone, each predicted from the others. A larger w looks at near points",
            "  only, and the curve is sharper. A model learns where to look in the same way,",
            "  with vectors instead of numbers.",
        ]
    )


def label(word: str) -> str:
    """Return a word fit to print: nothing that would steer a terminal, not empty, not too long."""
    text = "".join(char if char.isprintable() else "?" for char in word)
    return text if cell_len(text) <= _LONGEST else set_cell_size(text, _LONGEST - 1) + "~"


def _folded(head: str, words: Sequence[str]) -> Iterator[str]:
    line = head.rstrip()
    for word in words:
        if cell_len(line) + 1 + cell_len(word) > 80:
            yield line
            line = " " * (len(head) - 1)
        line += f" {word}"
    yield line


def _small(value: float) -> str:
    return f"{value:.2f}" if value >= 0.005 else f"{value:.1e}" if value else "0"


def _bold(text: str, colour: bool) -> str:
    return _painted(text, _STRONG, colour)


def _signed(text: str, value: float, colour: bool) -> str:
    return text if abs(value) < 0.0005 else _painted(text, _WARM if value > 0 else _COLD, colour)


def _painted(text: str, paint: str, colour: bool) -> str:
    return f"\x1b[{paint}m{text}\x1b[0m" if colour else text
