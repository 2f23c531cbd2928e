"""Confusion matrices as terminal tables and HTML pages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.cells import set_cell_size

from attnkit.plotting.attention_maps import display_text
from attnkit.plotting.html import escape, static_page
from attnkit.plotting.html.heat import shaded
from attnkit.plotting.terminal import draw_table, fit_label

Counts = NDArray[np.int64]
_LONGEST_ROW, _LONGEST_COLUMN, _NARROWEST = 20, 12, 5
_RIGHT, _WRONG = "38;5;39", "38;5;208"  #: 256-colour foregrounds, distinguishable by colour-blind readers
MOST_LABELS = 24  #: maximum size of a terminal table; with more labels, only the most frequent mistakes are listed
_MOST_MISTAKES = 20
_STYLE = (
    "thead th{vertical-align:bottom}tbody td.cell{border:1px solid var(--line)}"
    "th[scope=row]{text-align:left}ol{margin:0;padding-left:2.4em}li{overflow-wrap:anywhere}"
)


def confusion_table(labels: Sequence[str], counts: Counts, *, colour: bool, width: int = 80) -> str:
    """Format counts (L, L), gold by predicted, with precision and recall in percent.

    Wide tables continue in blocks below. With more than ``MOST_LABELS`` labels, only the most frequent mistakes are
    listed. ``colour`` paints correct counts blue and mistakes orange; without it, only ASCII is added to the labels.

    Raises:
        ValueError: the shape of the counts is not (L, L).
    """
    _check(labels, counts)
    if len(labels) > MOST_LABELS:
        size = (width - 22) // 2
        lines = [f"most frequent mistakes of {len(labels)} labels: gold, predicted"]
        for i, j, n in _mistakes(counts):
            expected, found = (fit_label(labels[k], size, colour=colour) for k in (i, j))
            lines.append(f"{n:>9,}  {set_cell_size(expected, size)}  {found}")
        return "\n".join(lines if len(lines) > 1 else [*lines, "  none"])
    heads = [*(fit_label(label, _LONGEST_COLUMN, colour=colour) for label in labels), "recall"]
    precision, recall = _shares(counts, 0), _shares(counts, 1)
    rows = []
    for i, row in enumerate(counts.tolist()):
        cells = [(str(n or "."), (_RIGHT if i == j else _WRONG) if n else "") for j, n in enumerate(row)]
        rows.append((fit_label(labels[i], _LONGEST_ROW, colour=colour), [*cells, (recall[i], "")]))
    rows.append(("precision", [*((share, "") for share in precision), ("", "")]))
    drawn = draw_table(heads, rows, narrowest=_NARROWEST, gap=2, colour=colour, width=width)
    return f"rows: gold, columns: predicted\n\n{drawn}"


Mistakes = Sequence[tuple[float, str, str, str]]
"""Probability of the predicted label, text, gold label and predicted label of each."""


def confusion_page(labels: Sequence[str], counts: Counts, title: str, mistakes: Mistakes = ()) -> str:
    """Return a static, self-contained HTML page of counts (L, L), gold by predicted.

    ``mistakes`` are listed with their texts.

    Raises:
        ValueError: the shape of the counts is not (L, L).
    """
    table, frequent = _parts(labels, counts)
    scroll = '<div class="scroll" tabindex="0" role="region" aria-label="Confusion matrix">'
    sections = [
        f'<section class="card">{scroll}{table}</div></section>',
        f'<section class="card"><h2>Most frequent mistakes</h2>{frequent}</section>',
    ]
    if mistakes:
        sections.append(f'<section class="card"><h2>Most confident mistakes</h2>{_listed(mistakes)}</section>')
    return static_page("attnkit predict", display_text(title), sections, _STYLE)


def confusion_fragment(labels: Sequence[str], counts: Counts) -> str:
    """Return the table and the mistakes of a page as an HTML fragment, for notebooks.

    Raises:
        ValueError: the shape of the counts is not (L, L).
    """
    table, mistakes = _parts(labels, counts)
    scroll = '<div style="overflow-x:auto;max-width:100%;text-align:right">'
    return f"{scroll}{table}</div><details><summary>Most frequent mistakes</summary>{mistakes}</details>"


def _listed(mistakes: Mistakes) -> str:
    """Return a table of mistakes with their texts."""
    rows = []
    for probability, *texts in mistakes:
        text, gold, found = (escape(display_text(part)) for part in texts)
        names = f'<td class="words"><bdi>{gold}</bdi></td><td class="words"><bdi>{found}</bdi></td>'
        rows.append(f'<tr><td>{probability:.3f}</td>{names}<td class="words" dir="auto">{text}</td></tr>')
    heads = '<th>probability</th><th class="words">gold</th><th class="words">predicted</th><th class="words">text</th>'
    caption = "Probability: of the predicted label, which is wrong. Long texts are cut."
    table = f"<table><caption>{caption}</caption><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="Mistakes">{table}</div>'


def _parts(labels: Sequence[str], counts: Counts) -> tuple[str, str]:
    """Return the table, and the list of the most frequent mistakes."""
    _check(labels, counts)
    names = [f"<bdi>{escape(display_text(label))}</bdi>" for label in labels]
    hints = [escape(display_text(label)) for label in labels]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    body = []
    for i, (row, parts, recall) in enumerate(zip(counts, shares.tolist(), _shares(counts, 1), strict=True)):
        name, cells = hints[i], []
        for column, n, share in zip(hints, row, parts, strict=True):
            hint = f"{name} predicted as {column}: {n:,} ({100 * share:.1f} %)"
            cells.append(f'<td class="cell" title="{hint}" style="{shaded(share)}">{n:,}</td>')
        body.append(f'<tr><th scope="row">{names[i]}</th>{"".join(cells)}<td class="share">{recall}</td></tr>')
    precision = "".join(f"<td>{share}</td>" for share in _shares(counts, 0))
    n_right, total = int(counts.trace()), int(counts.sum())
    accuracy = f"{100 * n_right / total:.1f}" if total else "-"
    caption = f"Rows: gold, columns: predicted; {n_right:,} of {total:,} correct ({accuracy} %). Shade: share of row."
    mistakes = "".join(f"<li>{names[i]} predicted as {names[j]}: {n:,}</li>" for i, j, n in _mistakes(counts))
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    rows = [
        f"<table><caption>{caption}</caption>",
        f'<thead><tr><td></td>{head}<th scope="col">recall %</th></tr></thead><tbody>',
        *body,
        f'</tbody><tfoot><tr><th scope="row">precision %</th>{precision}<td></td></tr></tfoot></table>',
    ]
    return "\n".join(rows), f"<ol>{mistakes}</ol>" if mistakes else "<p>None.</p>"


def _mistakes(counts: Counts) -> list[tuple[int, int, int]]:
    """Return (gold, predicted, count) of the most frequent mistakes, at most 20."""
    wrong = counts * (1 - np.eye(len(counts), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[: min(_MOST_MISTAKES, int(np.count_nonzero(wrong)))]
    pairs = zip(*(numbers.tolist() for numbers in np.unravel_index(order, counts.shape)), strict=True)
    return [(i, j, int(counts[i, j])) for i, j in pairs]


def _check(labels: Sequence[str], counts: Counts) -> None:
    if counts.shape != (len(labels), len(labels)):
        raise ValueError(f"counts of shape {counts.shape} for {len(labels)} labels")


def _shares(counts: Counts, axis: int) -> list[str]:
    """Return the percentage of correct counts per column (axis 0) or row (axis 1)."""
    pairs = zip(counts.diagonal().tolist(), counts.sum(axis).tolist(), strict=True)
    return [f"{100 * part / whole:.1f}" if whole else "-" for part, whole in pairs]
