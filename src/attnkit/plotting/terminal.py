"""Attention maps and tables as terminal text, with helpers to fit text to columns."""

import re
from collections.abc import Sequence
from itertools import accumulate, zip_longest

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len, set_cell_size

from attnkit.plotting.attention_maps import AttentionExample, MapSlice, display_text

_LONGEST_LABEL, _LONGEST_COLUMN, _NARROWEST_COLUMN = 16, 12, 3
Cells = Sequence[tuple[str, str]]  #: text and ANSI style of each cell
_PAINT = re.compile("\x1b\\[[0-9;]*m")
# Minimum weight, 256-colour background and a readable foreground, from strong to faint.
_SHADES = tuple(
    (least, f"48;5;{background};38;5;{foreground}")
    for least, background, foreground in (
        (0.75, 49, 16), (0.5, 43, 16), (0.3, 37, 16), (0.15, 30, 231), (0.05, 23, 231),
    )
)  # fmt: skip


def sentence_maps(sentence: AttentionExample, slices: Sequence[MapSlice], *, colour: bool, width: int = 80) -> str:
    """Format an example and its attention maps, side by side if they fit."""
    lines = fold(display_text(sentence.source), width)
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in sentence.facts.items())
    if sentence.target or sentence.sides[1]:  # some models predict nothing
        lines += fold(f"-> {display_text(sentence.target)}" + (f"  ({facts})" if facts else ""), width, "  ")
    said = "; ".join(dict.fromkeys(one.axes for one in slices))
    lines += ["", f"{said}; weights in percent"]
    rows: list[list[tuple[list[str], int]]] = []  # per row of maps: (lines, width) of each map
    for one in slices:
        drawn = attention_map(one.weights, one.keys, one.queries, colour=colour, width=width)
        entropy = f"entropy {one.entropy:.2f} bits per row"
        block = [paint(one.title, "1", colour), entropy, *drawn.split("\n")]
        wide = max(map(_width, block))
        if rows and sum(size + 3 for _, size in rows[-1]) + wide <= width:
            rows[-1].append((block, wide))
        else:
            rows.append([(block, wide)])
    for row in rows:
        lines.append("")
        for parts in zip_longest(*(block for block, _ in row), fillvalue=""):
            padded = [part + " " * (wide - _width(part)) for part, (_, wide) in zip(parts, row, strict=True)]
            lines.append("   ".join(padded).rstrip())
    return "\n".join(lines)


def _width(line: str) -> int:
    return cell_len(_PAINT.sub("", line))


def attention_map(
    weights: npt.ArrayLike, src_tokens: Sequence[str], tgt_tokens: Sequence[str], *, colour: bool, width: int = 80
) -> str:
    """Format attention weights (T, S) in percent, target tokens by source tokens.

    Weights below 0.5 % are shown as dots, non-finite ones as ``?``. With ``colour``, large weights get a background
    (ANSI, 256 colours); without it, only ASCII is added to the tokens. Tables wider than ``width`` columns continue
    in blocks below.

    Raises:
        ValueError: the shape of the weights does not match the tokens.
    """
    matrix = np.asarray(weights, dtype=np.float64)
    if matrix.shape != (len(tgt_tokens), len(src_tokens)):
        n_src, n_tgt = len(src_tokens), len(tgt_tokens)
        raise ValueError(f"weights of shape {matrix.shape} for {n_tgt} target and {n_src} source tokens")
    if not matrix.size:
        return ""
    rows = []
    for token, weights_of_row in zip(tgt_tokens, matrix.tolist(), strict=True):
        cells = []
        for weight in weights_of_row:
            text = "?" if not np.isfinite(weight) else "." if weight < 0.005 else f"{100 * weight:.0f}"
            cells.append((text, next((style for least, style in _SHADES if weight >= least), "")))
        rows.append((fit_label(token, _LONGEST_LABEL, colour=colour), cells))
    heads = [fit_label(token, _LONGEST_COLUMN, colour=colour) for token in src_tokens]
    return draw_table(heads, rows, narrowest=_NARROWEST_COLUMN, gap=1, colour=colour, width=width)


def draw_table(
    heads: Sequence[str], rows: Sequence[tuple[str, Cells]], *, narrowest: int, gap: int, colour: bool, width: int
) -> str:
    """Format a table with row labels; wide tables continue in blocks below.

    A cell is a pair of text and ANSI style, "" for plain text, and is aligned to the right. Columns are at least
    ``narrowest`` characters wide and preceded by ``gap`` spaces.
    """
    margin = max(cell_len(label) for label, _ in rows)
    sizes = [max(narrowest, cell_len(head)) for head in heads]
    for _, cells in rows:
        sizes = [max(size, cell_len(text)) for size, (text, _) in zip(sizes, cells, strict=True)]
    blocks: list[list[int]] = [[]]  # column indices; at least one per block
    used = margin
    for column, size in enumerate(sizes):
        if blocks[-1] and used + size + gap > width:
            blocks.append([])
            used = margin
        blocks[-1].append(column)
        used += size + gap
    drawn = []
    for columns in blocks:
        lines = []
        for label, cells in [("", [(head, "") for head in heads]), *rows]:
            parts = [set_cell_size(label, margin)]
            for column in columns:
                text, style = cells[column]
                text = " " * (sizes[column] - cell_len(text)) + text
                parts.append(" " * gap + paint(text, style, colour and bool(style)))
            lines.append("".join(parts).rstrip())
        drawn.append("\n".join(lines))
    return "\n\n".join(drawn)


def paint(text: str, style: str, colour: bool) -> str:
    """Return text in an ANSI style such as ``38;5;39``, or plain without ``colour``."""
    return f"\x1b[{style}m{text}\x1b[0m" if colour else text


def fit_label(text: str, longest: int, *, colour: bool) -> str:
    """Return a printable, non-empty label of at most ``longest`` columns."""
    text = "".join(char if char.isprintable() else "?" for char in text).strip() or "_"
    mark = "…" if colour else "~"
    return text if cell_len(text) <= longest else set_cell_size(text, longest - 1).rstrip() + mark


def truncate(text: str, width: int) -> str:
    """Truncate text to ``width`` columns, ending in … if it does not fit."""
    if cell_len(text) <= width:
        return text
    n_fit = sum(used < width for used in accumulate(map(cell_len, text)))
    return text[:n_fit] + "…" if width else ""


def fold(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap text at spaces, breaking only words that are wider than a line."""
    lines = [indent]
    for word in re.findall(r"\s*\S+", text):
        if cell_len(lines[-1] + word) > width:
            word = word.lstrip()
            lines += [indent] * (lines[-1] != indent)
        while cell_len(lines[-1] + word) > width:
            fits = set_cell_size(word, width - cell_len(indent)).rstrip()
            lines[-1] += fits
            lines.append(indent)
            word = word[len(fits) :]
        lines[-1] += word
    return lines
