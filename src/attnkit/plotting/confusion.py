"""Which labels were taken for which: a table for a terminal, and a page. Knows labels and counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size

from attnkit.plotting.attention_maps import shown
from attnkit.plotting.html import escape

Counts = NDArray[np.int64]
_LONGEST_ROW, _LONGEST_COLUMN, _NARROWEST = 20, 12, 5
_RIGHT, _WRONG = 39, 208
"""256-colour foregrounds, apart for colour-blind eyes."""
MOST_LABELS = 24
"""Labels whose table is drawn in a terminal; with more, only the most frequent mistakes are shown."""
_MOST_MISTAKES = 20
_STYLE = (
    "body{font:15px/1.4 system-ui,sans-serif;margin:2em;color:#1b1f24;background:#fff}"
    "table{border-collapse:collapse}caption{text-align:left;padding-bottom:.6em;white-space:nowrap}"
    "th,td{padding:.3em .6em;text-align:right;font-variant-numeric:tabular-nums}th{font-weight:600}"
    "thead th{vertical-align:bottom}tbody td.cell{border:1px solid #fff}"
    "td.share,tfoot td,tfoot th{color:#57606a}"
)
_RAMP = ((247, 250, 252), (198, 221, 238), (112, 172, 212), (36, 113, 178), (8, 48, 107))
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def confusion_table(labels: Sequence[str], counts: Counts, *, colour: bool, width: int = 80) -> str:
    """Draw counts (L, L), expected by found, with precision and recall in percent; wide tables continue below.

    With more than ``MAX_LABELS`` labels the most frequent mistakes are listed instead. With ``colour`` what is right
    is blue and what is not is orange; without it only ASCII is added to the labels.

    Raises:
        ValueError: the counts are not (L, L).
    """
    _check(labels, counts)
    if len(labels) > MOST_LABELS:
        return _mistakes(labels, counts, colour=colour, width=width)
    mark = "…" if colour else "~"
    rows = [_fit(label, _LONGEST_ROW, mark) for label in labels]
    heads = [_fit(label, _LONGEST_COLUMN, mark) for label in labels]
    margin = max(map(cell_len, [*rows, "precision"]))
    right = [_share(counts[i, i], counts[i].sum()) for i in range(len(labels))]
    below = [_share(counts[i, i], counts[:, i].sum()) for i in range(len(labels))]
    sizes = [max(_NARROWEST, cell_len(head), len(f"{counts[:, i].max()}")) for i, head in enumerate(heads)]
    blocks = []
    runs = _runs([*sizes, len("recall")], width - margin)
    for start, stop in runs:
        columns = range(start, min(stop, len(labels)))
        last = stop > len(labels)
        lines = [_left("", margin) + "".join(_right(heads[i], sizes[i]) for i in columns) + "  recall" * last]
        for i, row in enumerate(rows):
            cells = "".join(_cell(int(counts[i, j]), sizes[j], i == j, colour) for j in columns)
            lines.append(_left(row, margin) + cells + _right(right[i], len("recall")) * last)
        lines.append(_left("precision", margin) + "".join(_right(below[j], sizes[j]) for j in columns))
        blocks.append("\n".join(line.rstrip() for line in lines))
    return "\n\n".join(["rows: expected, columns: found", *blocks])


def confusion_page(labels: Sequence[str], counts: Counts, title: str) -> str:
    """Return an HTML document with the table (L, L), expected by found. It runs no script and fetches nothing.

    Raises:
        ValueError: the counts are not (L, L).
    """
    _check(labels, counts)
    names = [escape(shown(label)) for label in labels]
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    body = []
    for i, name in enumerate(names):
        cells = "".join(_page_cell(names, counts, shares, i, j) for j in range(len(names)))
        recall = _share(counts[i, i], counts[i].sum())
        body.append(f'<tr><th scope="row">{name}</th>{cells}<td class="share">{recall}</td></tr>')
    precision = "".join(f"<td>{_share(counts[i, i], counts[:, i].sum())}</td>" for i in range(len(names)))
    n, total = int(counts.trace()), int(counts.sum())
    caption = (
        f"Rows: expected, columns: found; {n:,} of {total:,} right ({_share(n, total)} %). Shades: share of a row."
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(shown(title))}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(shown(title))}</h1><table><caption>{caption}</caption>",
            f'<thead><tr><td></td>{head}<th scope="col">recall %</th></tr></thead><tbody>',
            *body,
            f'</tbody><tfoot><tr><th scope="row">precision %</th>{precision}<td></td></tr></tfoot>',
            "</table></body></html>",
            "",
        ]
    )


def _page_cell(names: Sequence[str], counts: Counts, shares: NDArray[np.float64], i: int, j: int) -> str:
    share = float(shares[i, j])
    title = f"{names[i]} found as {names[j]}: {counts[i, j]:,} ({100 * share:.1f} %)"
    ink = "#fff" if share > 0.55 else "#1b1f24"
    style = f"background:{_shade(share)};color:{ink}"
    return f'<td class="cell" title="{title}" style="{style}">{counts[i, j]:,}</td>'


def _shade(share: float) -> str:
    """Return the colour of a share from 0 (white) to 1 (dark blue)."""
    place = min(max(share, 0.0), 1.0) * (len(_RAMP) - 1)
    low = min(int(place), len(_RAMP) - 2)
    mixed = [a + (b - a) * (place - low) for a, b in zip(_RAMP[low], _RAMP[low + 1], strict=True)]
    return "#" + "".join(f"{round(part):02x}" for part in mixed)


def _mistakes(labels: Sequence[str], counts: Counts, *, colour: bool, width: int) -> str:
    wrong = counts * (1 - np.eye(len(labels), dtype=np.int64))
    order = np.argsort(-wrong, axis=None, kind="stable")[: min(_MOST_MISTAKES, int(np.count_nonzero(wrong)))]
    mark = "…" if colour else "~"
    size = (width - 22) // 2
    lines = [f"most frequent mistakes of {len(labels)} labels: expected, found"]
    for place in order.tolist():
        i, j = divmod(place, len(labels))
        names = f"{_left(_fit(labels[i], size, mark), size)}  {_fit(labels[j], size, mark)}"
        lines.append(f"{counts[i, j]:>9,}  {names}")
    return "\n".join(lines if len(order) else [*lines, "  none"])


def _check(labels: Sequence[str], counts: Counts) -> None:
    if counts.shape != (len(labels), len(labels)):
        raise ValueError(f"counts of shape {counts.shape} for {len(labels)} labels")


def _fit(label: str, longest: int, mark: str) -> str:
    """Return a label that steers no terminal, cut to so many columns."""
    text = "".join(char if char.isprintable() else "?" for char in label).strip() or "_"
    return text if cell_len(text) <= longest else set_cell_size(text, longest - 1).rstrip() + mark


def _left(text: str, size: int) -> str:
    return set_cell_size(text, size)


def _right(text: str, size: int) -> str:
    return "  " + " " * (size - cell_len(text)) + text


def _cell(count: int, size: int, right: bool, colour: bool) -> str:
    text = _right(str(count) if count else ".", size)
    return f"\x1b[38;5;{_RIGHT if right else _WRONG}m{text}\x1b[0m" if colour and count else text


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _runs(sizes: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Cut columns into runs that fit, each holding at least one."""
    runs, start, used = [], 0, 0
    for column, size in enumerate(sizes):
        if column > start and used + size + 2 > room:
            runs.append((start, column))
            start, used = column, 0
        used += size + 2
    return [*runs, (start, len(sizes))]
