"""Pictures for a terminal, as strings: which tokens each token looked at, a sentence's maps. Knows no model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len, set_cell_size

from attnkit.plotting.attention_maps import AttentionExample, MapSlice, shown

_LONGEST_LABEL, _LONGEST_COLUMN, _NARROWEST_COLUMN = 16, 12, 3
_GAP = 1
_PAINT = re.compile("\x1b\\[[0-9;]*m")
# 256-colour backgrounds from faint to strong with a foreground readable on each, and the weight from which they apply.
_SHADES = ((0.75, 49, 16), (0.5, 43, 16), (0.3, 37, 16), (0.15, 30, 231), (0.05, 23, 231))


def sentence_maps(sentence: AttentionExample, pictures: Sequence[MapSlice], *, colour: bool, width: int = 80) -> str:
    """Draw a sentence and some of its maps, side by side where they fit."""
    lines = _folded(shown(sentence.source), width)
    facts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in sentence.facts.items())
    lines += _folded(f"-> {shown(sentence.target)}" + (f"  ({facts})" if facts else ""), width, "  ")
    said = "; ".join(dict.fromkeys(picture.axes for picture in pictures))
    lines += ["", f"{said}; weights in percent"]
    blocks = []
    for picture in pictures:
        drawn = attention_map(picture.weights, picture.keys, picture.queries, colour=colour, width=width)
        title = f"\x1b[1m{picture.title}\x1b[0m" if colour else picture.title
        blocks.append([title, f"entropy {picture.entropy:.2f} bits a row", *drawn.split("\n")])
    return "\n".join([*lines, *_beside(blocks, width)])


def _folded(text: str, width: int, indent: str = "") -> list[str]:
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


def _beside(blocks: Sequence[list[str]], width: int) -> list[str]:
    """Put blocks of lines next to each other while they fit, else below."""
    rows: list[list[list[str]]] = []
    used = 0
    for block in blocks:
        wide = _wide(block)
        if rows and used + 3 + wide <= width:
            rows[-1].append(block)
            used += 3 + wide
        else:
            rows.append([block])
            used = wide
    lines = []
    for row in rows:
        lines.append("")
        for parts in zip_longest(*row, fillvalue=""):
            padded = [part + " " * (_wide(block) - _wide([part])) for part, block in zip(parts, row, strict=True)]
            lines.append("   ".join(padded).rstrip())
    return lines


def _wide(lines: Sequence[str]) -> int:
    return max((cell_len(_PAINT.sub("", line)) for line in lines), default=0)


def attention_map(
    weights: npt.ArrayLike,
    src_tokens: Sequence[str],
    tgt_tokens: Sequence[str],
    *,
    colour: bool,
    width: int = 80,
) -> str:
    """Draw attention weights (T, S): a row for each target token, a column for each source token, cells in percent.

    Weights below half a percent are dots. With ``colour`` strong cells get a background (ANSI, 256 colours); without it
    only ASCII is added to the tokens. A sentence wider than ``width`` columns continues in blocks below.

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
    rows = _labels(tgt_tokens, _LONGEST_LABEL, colour=colour)
    heads = _labels(src_tokens, _LONGEST_COLUMN, colour=colour)
    margin = max(cell_len(label) for label in rows)
    widths = [max(_NARROWEST_COLUMN, cell_len(head)) for head in heads]
    blocks = []
    for start, stop in _blocks(widths, width - margin):
        sizes = widths[start:stop]
        header = " " * margin + "".join(_cell(head, size) for head, size in zip(heads[start:stop], sizes, strict=True))
        lines = [
            set_cell_size(label, margin) + _row(matrix[t, start:stop], sizes, colour=colour)
            for t, label in enumerate(rows)
        ]
        blocks.append("\n".join(line.rstrip() for line in (header, *lines)))
    return "\n\n".join(blocks)


def _labels(tokens: Sequence[str], longest: int, *, colour: bool) -> list[str]:
    """Make tokens fit to print: no control characters (they could steer the terminal), none empty, none too long."""
    shown = ("".join(char if char.isprintable() else "?" for char in token).strip() or "_" for token in tokens)
    mark = "…" if colour else "~"
    return [text if cell_len(text) <= longest else set_cell_size(text, longest - 1).rstrip() + mark for text in shown]


def _blocks(widths: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Cut columns into runs that fit; every run holds at least one."""
    runs, start, used = [], 0, 0
    for column, size in enumerate(widths):
        if column > start and used + size + _GAP > room:
            runs.append((start, column))
            start, used = column, 0
        used += size + _GAP
    return [*runs, (start, len(widths))]


def _cell(text: str, size: int) -> str:
    return " " * (_GAP + size - cell_len(text)) + text


def _row(weights: npt.NDArray[np.float64], sizes: Sequence[int], *, colour: bool) -> str:
    return "".join(_shaded(weight, size, colour=colour) for weight, size in zip(weights.tolist(), sizes, strict=True))


def _shaded(weight: float, size: int, *, colour: bool) -> str:
    """Write one weight; a cell that is not a number shows as ``?``."""
    percent = "?" if not np.isfinite(weight) else "." if weight < 0.005 else f"{100 * weight:.0f}"
    text = _cell(percent, size)
    if colour:
        for least, background, foreground in _SHADES:
            if weight >= least:
                return f"{text[:_GAP]}\x1b[48;5;{background};38;5;{foreground}m{text[_GAP:]}\x1b[0m"
    return text
