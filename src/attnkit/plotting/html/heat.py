"""Attention maps as HTML tables for notebooks: no script, no style sheet.

A cell has a background and a text colour of its own; all other text has the colour of the page around it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnkit.plotting.attention_maps import RAMP, MapSlice, display_text
from attnkit.plotting.html import escape

MAX_CELLS = 20_000  #: maximum number of cells of all maps together: about 2 MB
_MOST_NUMBERS = 24  # columns up to which weights are written into the cells
_QUIET = "font-size:12px;opacity:0.75"
_PLAIN = "padding:1px 4px;border:0;background:none;font-weight:normal;font-size:12px;white-space:nowrap"


def shade(share: float) -> str:
    """Return the background colour for a share, from 0 (white) to 1 (dark blue)."""
    place = min(max(share, 0.0), 1.0) * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    pairs = zip(*(bytes.fromhex(colour[1:]) for colour in RAMP[low : low + 2]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in pairs)


def shaded(share: float) -> str:
    """Return the style of a cell for a share: a background and a readable text colour."""
    return f"background:{shade(share)};color:{'#fff' if share > 0.55 else '#1b1f24'}"


def heat_maps(slices: Sequence[MapSlice], heading: str) -> str:
    """Return attention maps side by side, with a shared colour scale.

    Weights are written in percent where there is room. Maps beyond ``MAX_CELLS`` are left out, and a line says so.
    """
    finite = [float(np.max(one.weights, where=np.isfinite(one.weights), initial=0.0)) for one in slices]
    top, n_cells, drawn = max(finite, default=0.0) or 1.0, 0, []
    for one in slices:
        n_cells += one.weights.size
        if n_cells <= MAX_CELLS:
            drawn.append(_heat_map(one, top))
    axes = "; ".join(dict.fromkeys(one.axes for one in slices))
    scale = f"weights in percent, the darkest {100 * top:.0f}"
    left_out = len(slices) - len(drawn)
    note = f"<p style='{_QUIET};margin:2px 0'>{left_out} of {len(slices)} maps are too large to be shown here</p>"
    return "".join(
        [
            '<div style="font-family:system-ui,sans-serif">',
            f'<div style="font-weight:600"><bdi>{escape(display_text(heading))}</bdi></div>' if heading else "",
            f'<div style="{_QUIET}">{escape(axes)}; {scale}</div>' if drawn else "",
            f'<div style="display:flex;flex-wrap:wrap;gap:14px 28px">{"".join(drawn)}</div>',
            note if left_out else "",
            "</div>",
        ]
    )


def _heat_map(one: MapSlice, top: float) -> str:
    """Return one map as a table; ``top`` is the weight with the darkest background."""
    upright = "writing-mode:vertical-rl;transform:rotate(180deg);vertical-align:top;text-align:left;padding:4px 1px"
    heads = "".join(f'<th scope="col" style="{_PLAIN};{upright}">{_token(key)}</th>' for key in one.keys)
    numbers = len(one.keys) <= _MOST_NUMBERS
    size = f"border:0;padding:0;font-size:10px;text-align:center;width:{22 if numbers else 12}px;height:18px"
    rows = []
    for query, weights in zip(one.queries, one.weights.tolist(), strict=True):
        cells = []
        for weight in weights:
            if not np.isfinite(weight):
                cells.append(f'<td style="{size};background:#c0392b;color:#fff">?</td>')
                continue
            percent = f"{100 * weight:.0f}" if weight >= 0.005 else ""
            hint = "" if numbers else f' title="{100 * weight:.1f} %"'
            style = f"{size};{shaded(weight / top)}"
            cells.append(f'<td{hint} style="{style}">{percent if numbers else ""}</td>')
        head = f'<th scope="row" style="{_PLAIN};text-align:right">{_token(query)}</th>'
        rows.append(f'<tr style="background:none">{head}{"".join(cells)}</tr>')
    title = f'<div style="font-size:13px">{escape(display_text(one.title))}</div>'
    entropy = f'<div style="{_QUIET}">entropy {one.entropy:.2f} bits per row</div>'
    head = f'<thead style="border:0"><tr style="background:none"><td style="border:0"></td>{heads}</tr></thead>'
    style = "border-collapse:separate;border-spacing:1px;border:0;margin:4px 0 0;font-variant-numeric:tabular-nums"
    table = f'<table style="{style}">{head}<tbody>{"".join(rows)}</tbody></table>'
    return f'<div style="overflow-x:auto;max-width:100%">{title}{entropy}{table}</div>'


def _token(text: str) -> str:
    """Return a token, isolated from the direction of its neighbours."""
    return f"<bdi>{escape(display_text(text))}</bdi>"
