"""Lessons of ``attnkit explain`` as data, and as text 80 columns wide."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

from attnkit.io.plain_data import PlainResult
from attnkit.plotting.curves import Curve, character_plot
from attnkit.plotting.terminal import attention_map, fit_label, fold, paint


@dataclass(frozen=True)
class MaskLesson(PlainResult):
    """An attention mask over a sentence."""

    words: Sequence[str]
    pattern: str | None  #: name of the sparse pattern; None for dense attention
    size: int  #: size parameter of the pattern
    n_global: int  #: number of global positions of the pattern
    causal: bool
    mask: Sequence[Sequence[bool]]
    """Rows are query positions, columns key positions; True where attention is allowed."""
    weights: Sequence[Sequence[float]]  #: softmax of equal scores under this mask
    pairs: Sequence[tuple[int, int]]  #: (sequence length, number of allowed pairs)


@dataclass(frozen=True)
class PositionsLesson(PlainResult):
    """Sinusoidal positional encodings, and attention with and without positions."""

    table: Sequence[Sequence[float]]  #: one row per position
    shift: int
    angles: Sequence[float]  #: rotation of each sine-cosine pair by the shift, in radians
    matrix: Sequence[Sequence[float]]  #: M with PE(pos + shift) = M PE(pos)
    errors: Mapping[int, float]  #: position -> largest |PE(pos + shift) - M PE(pos)|
    words: Sequence[str]
    order: Sequence[int]  #: original positions of the shuffled words
    moved: Mapping[str, Sequence[float]]
    """Kind of positions -> largest change of each word's encoder output when the sentence is shuffled."""
    picture: Sequence[Sequence[float]]  #: larger table, for figures


@dataclass(frozen=True)
class Fit:
    """A fitted regression curve and its error."""

    name: str
    w: float | None
    error: float  #: mean squared error against the true curve
    effective_points: float  #: exp(entropy of the weights), averaged over the curve


@dataclass(frozen=True)
class PoolingLesson(PlainResult):
    """Kernel regression: noisy points, the true curve and the fitted curves."""

    curves: Sequence[Curve]
    fits: Sequence[Fit]


_LONGEST = 12  #: maximum columns of a word
_SEES, _STRONG, _WARM, _COLD = "48;5;30;38;5;231", "1", "38;5;208", "38;5;39"

PATTERN_WORDS = {
    "window": "Every position sees {neighbours} to each side, and itself.",
    "strided": "Every position sees positions less than {size} away, and one in {size} beyond.",
    "block": "The sequence is cut into blocks of {size}; every position sees its own block.",
    "global": "Every position sees {neighbours} to each side and itself; the first {n_global}\n  {see}.",
}
_WHY_CAUSAL = """\
  A decoder generates one word after another. In training the whole sentence is
  known, and all its words are predicted at once: each from the words before it.
  The mask hides the words that are not written yet, or the model would learn to
  copy them. A masked token's score becomes minus infinity before the softmax,
  and e to minus infinity is 0.
"""
_CAUSAL_ROWS = """
  Each row sums to 100, up to rounding: the first word attends only to itself,
  the last one shares its attention among all."""
_WHY_SPARSE = """\
  Attention compares pairs of positions; their number grows with the square of
  the length. A pattern computes some pairs only; what it leaves out is never
  stored. Stacked layers extend the receptive field beyond one pattern.
"""
_POSITIONS = """
  PE(pos, 2i) = sin(pos / 10000^(2i/{width})), PE(pos, 2i+1) = cos(pos / 10000^(2i/{width}))
  {width} numbers here (a real model has hundreds): pairs of a sine and a cosine, the
  first pair rotating fastest, each later pair more slowly.
"""
_SHIFT = """
  So a shift by {positions} is the same linear map at every
  position, and a layer can learn a linear map.
"""
_ENCODER = """
  An encoder (2 layers, 4 heads, random weights) reads both. For each word, the
  largest difference between its two vectors, one from each sentence:
"""
_SHUFFLED = """
  Without positions the differences are rounding errors: the model cannot tell
  one order from another. With positions, a vector depends on word position."""
_POOLING = """
  {n_points} noisy points are drawn around y = 2 sin x + x^0.8. To fit a curve:
  at x, take the mean of all y, each weighted by how close its own x is. That
  is attention: x is the query, the points' x are keys, their y are values, and

    weights = softmax( -((x - x_i) w)^2 / 2 ),   curve(x) = sum of weights y_i
"""
_FITS = """
  Errors are squared distances from the true curve; the effective points are e
  to the entropy of the weights; both are means over the curve. With w = 1 many
  points count, near and far, and the curve is too flat. w was learned from the
  points alone, each predicted from the others. A larger w looks at near points
  only, and the curve is sharper. A model learns where to look in the same way,
  with vectors instead of numbers."""


def mask_text(lesson: MaskLesson, colour: bool) -> str:
    """Format a mask lesson: the mask, then its weights or the number of pairs."""
    words = [label(word) for word in lesson.words]
    numbers = [str(n) for n in range(1, len(words) + 1)]
    title = "The causal mask" if lesson.pattern is None else f"The sparse pattern '{lesson.pattern}'"
    lines = [paint(f"{title}: allowed attention", _STRONG, colour), ""]
    lines.append("  Rows are query positions, columns key positions.")
    if lesson.pattern is not None:
        lines.append("  " + _pattern_words(lesson.pattern, lesson.size, lesson.n_global))
        if lesson.causal:
            lines.append("  No position attends to later positions.")
    rows = [f"{n:>2} {word}".rstrip() for n, word in zip(numbers, words, strict=True)]
    margin = max(map(cell_len, rows)) + 2
    lines += ["", " " * margin + "".join(f"{n:>3}" for n in numbers)]
    for text, row in zip(rows, lesson.mask, strict=True):
        cells = "".join("  " + paint("#", _SEES, colour) if sees else "  ." for sees in row)
        lines.append("  " + set_cell_size(text, margin - 2) + cells)
    lines += ["", "  # allowed   . masked: the weight is exactly 0", ""]
    if lesson.pattern is None:
        drawn = attention_map(lesson.weights, numbers, words, colour=colour, width=76)
        lines += [_WHY_CAUSAL, paint("Weights in percent if all scores are equal", _STRONG, colour), ""]
        lines += [*(f"  {line}".rstrip() for line in drawn.splitlines()), _CAUSAL_ROWS]
    else:
        lines += [_WHY_SPARSE, f"  {'positions':>10}  {'all pairs':>14}  {'in the pattern':>14}  {'share':>8}"]
        for length, n in lesson.pairs:
            lines.append(f"  {length:>10,}  {length**2:>14,}  {n:>14,}  {n / length**2:>8.2%}")
    return "\n".join(lines)


def positions_text(lesson: PositionsLesson, colour: bool) -> str:
    """Format a positions lesson: table, shift as a linear map, effect of shuffling."""
    width, shift = len(lesson.table[0]), lesson.shift
    title = "Sinusoidal positions: a vector per position, added to the word embedding"
    lines = [paint(title, _STRONG, colour), _POSITIONS.format(width=width)]
    lines.append("   pos" + "".join(f"{name:>8}" for name in ("sin", "cos") * (width // 2)))
    for pos, row in enumerate(lesson.table):
        cells = [paint(f"{x:8.3f}", _WARM if x > 0 else _COLD, colour and abs(x) >= 0.0005) for x in row]
        lines.append(f"  {pos:>4}" + "".join(cells))
    title = f"A shift is a linear map: PE(pos + {shift}) = M PE(pos), with the same M for every pos"
    lines += ["", paint(title, _STRONG, colour), ""]
    lines += [f"  M turns each pair (sin, cos) by {shift} times the pair's own angle:", ""]
    for i, angle in enumerate(lesson.angles):
        (a, b), (c, d) = (lesson.matrix[2 * i + row][2 * i : 2 * i + 2] for row in (0, 1))
        lines.append(f"    pair {i + 1}  angle {angle:8.4f}   ( {a:7.4f} {b:7.4f} )")
        lines.append(f"    {'':6}  {'':14}   ( {c:7.4f} {d:7.4f} )")
    lines += ["", f"  {'pos':>8}   largest difference between PE(pos + {shift}) and M PE(pos)"]
    lines += [f"  {pos:>8}   {_small(error)}" for pos, error in lesson.errors.items()]
    title = "Without positions, shuffling the words only shuffles their vectors"
    lines += [_SHIFT.format(positions=_count(shift, "position")), paint(title, _STRONG, colour), ""]
    words = [label(word) for word in lesson.words]
    for head, order in (("  sentence: ", range(len(words))), ("  shuffled: ", lesson.order)):
        first, *rest = fold(" ".join(words[i] for i in order), 80, " " * len(head))
        lines += [head + first.removeprefix(" " * len(head)), *rest]
    lines += [_ENCODER, f"  {'word':<{_LONGEST}}" + "".join(f"{name:>16}" for name in lesson.moved)]
    for n, word in enumerate(words):
        cells = [f"{_small(values[n]):>16}" for values in lesson.moved.values()]
        lines.append("  " + set_cell_size(word, _LONGEST) + "".join(cells))
    return "\n".join([*lines, _SHUFFLED])


def pooling_text(lesson: PoolingLesson, colour: bool) -> str:
    """Format a pooling lesson: points, true curve, and fits with their errors."""
    title = "Kernel regression, the precursor of attention (Nadaraya, Watson 1964)"
    lines = [paint(title, _STRONG, colour), _POOLING.format(n_points=len(lesson.curves[0].x))]
    lines += [character_plot(lesson.curves, colour=colour), ""]
    lines.append(f"  {'':<28}{'w':>8}{'squared error':>16}{'effective points':>20}")
    for fit in lesson.fits:
        w = "-" if fit.w is None else f"{fit.w:.2f}"
        lines.append(f"  {fit.name:<28}{w:>8}{fit.error:>16.4f}{fit.effective_points:>20.1f}")
    return "\n".join([*lines, _FITS])


def label(word: str) -> str:
    """Return a short, printable label of a word, or "" for an empty word."""
    return fit_label(word, _LONGEST, colour=False) if word else ""


def _pattern_words(pattern: str, size: int, n_global: int) -> str:
    """Say which positions a pattern allows."""
    return PATTERN_WORDS[pattern].format(
        size=size,
        neighbours=_count(size, "neighbour"),
        n_global="one" if n_global == 1 else n_global,
        see="sees all and is seen by all" if n_global == 1 else "see all and are seen by all",
    )


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _small(value: float) -> str:
    return f"{value:.2f}" if value >= 0.005 else f"{value:.1e}" if value else "0"
