"""Pictures for a terminal, as strings: attention weights, a sentence's maps, and how text is fitted into columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, zip_longest

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len, set_cell_size

from attnkit.plotting.attention_maps import AttentionExample, MapSlice, shown

_LONGEST_LABEL, _LONGEST_COLUMN, _NARROWEST_COLUMN = 16, 12, 3
_PAINT = re.compile("\x1b\\[[0-9;]*m")
# 256-colour backgrounds from faint to strong with a foreground readable on each, and the weight from which they apply.
_SHADES = ((0.75, 49, 16), (0.5, 43, 16), (0.3, 37, 16), (0.15, 30, 231), (0.05, 23, 231))


def sentence_maps(sentence: AttentionExample, pictures: Sequence[MapSlice], *, colour: bool, width: int = 80) -> str:
    """Draw a sentence and some of its maps, side by side where they fit."""
    lines = fold(shown(sentence.source), width)
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in sentence.facts.items())
    lines += fold(f"-> {shown(sentence.target)}" + (f"  ({facts})" if facts else ""), width, "  ")
    said = "; ".join(dict.fromkeys(picture.axes for picture in pictures))
    lines += ["", f"{said}; weights in percent"]
    rows: list[list[tuple[list[str], int]]] = []  # blocks of lines next to each other, with their widths
    for picture in pictures:
        drawn = attention_map(picture.weights, picture.keys, picture.queries, colour=colour, width=width)
        entropy = f"entropy {picture.entropy:.2f} bits a row"
        block = [paint(picture.title, "1", colour), entropy, *drawn.split("\n")]
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
    weights: npt.ArrayLike,
    src_tokens: Sequence[str],
    tgt_tokens: Sequence[str],
    *,
    colour: bool,
    width: int = 80,
) -> str:
    """Draw attention weights (T, S): a row for each target token, a column for each source token, cells in percent.

    Weights below half a percent are dots, what is not a number is ``?``. With ``colour`` strong cells get a background
    (ANSI, 256 colours); without it only ASCII is added to the tokens. A sentence wider than ``width`` columns continues
    in blocks below.

    Raises:
        ValueError: The weights are not (T, S) for the tokens given.
    """
    matrix = np.asarray(weights, dtype=np.float64)
    if matrix.shape != (len(tgt_tokens), len(src_tokens)):
        raise ValueError(
            f"weights of shape {matrix.shape} for {len(tgt_tokens)} target and {len(src_tokens)} source tokens"
        )
    if not matrix.size:
        return ""
    rows = [fit_label(token, _LONGEST_LABEL, colour=colour) for token in tgt_tokens]
    heads = [fit_label(token, _LONGEST_COLUMN, colour=colour) for token in src_tokens]
    margin = max(map(cell_len, rows))
    widths = [max(_NARROWEST_COLUMN, cell_len(head)) for head in heads]
    blocks = []
    for columns in split_columns(widths, width - margin, gap=1):
        lines = [" " * margin + "".join(f" {right(heads[s], widths[s])}" for s in columns)]
        for text, row in zip(rows, matrix.tolist(), strict=True):
            cells = "".join(" " + _shaded(row[s], widths[s], colour) for s in columns)
            lines.append(set_cell_size(text, margin) + cells)
        blocks.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join(blocks)


def _shaded(weight: float, size: int, colour: bool) -> str:
    text = right("?" if not np.isfinite(weight) else "." if weight < 0.005 else f"{100 * weight:.0f}", size)
    for least, background, foreground in _SHADES:
        if weight >= least:
            return paint(text, f"48;5;{background};38;5;{foreground}", colour)
    return text


def paint(text: str, style: str, colour: bool) -> str:
    """Return text in an ANSI style such as ``38;5;39`` if ``colour``."""
    return f"\x1b[{style}m{text}\x1b[0m" if colour else text


def fit_label(text: str, longest: int, *, colour: bool) -> str:
    """Return a text that steers no terminal, is not empty, and takes at most ``longest`` columns."""
    text = "".join(char if char.isprintable() else "?" for char in text).strip() or "_"
    mark = "…" if colour else "~"
    return text if cell_len(text) <= longest else set_cell_size(text, longest - 1).rstrip() + mark


def truncate(text: str, width: int) -> str:
    """Return as many characters as fit into the columns, the last of them … where some do not."""
    if cell_len(text) <= width:
        return text
    n_fit = sum(used < width for used in accumulate(map(cell_len, text)))
    return text[:n_fit] + "…" if width else ""


def right(text: str, size: int) -> str:
    """Return a text aligned to the right of some columns."""
    return " " * (size - cell_len(text)) + text


def split_columns(widths: Sequence[int], width: int, gap: int) -> list[list[int]]:
    """Split columns of a table, each behind a gap, into blocks that fit; every block holds at least one."""
    blocks: list[list[int]] = [[]]
    used = 0
    for column, size in enumerate(widths):
        if blocks[-1] and used + size + gap > width:
            blocks.append([])
            used = 0
        blocks[-1].append(column)
        used += size + gap
    return blocks


def fold(text: str, width: int, indent: str = "") -> list[str]:
    """Fold a text at its spaces, and a word that is wider than a line wherever that ends."""
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
