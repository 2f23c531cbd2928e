"""``attnkit runs``: a table of the runs below a folder."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from attnkit.cli.options import Json

if TYPE_CHECKING:
    from attnkit.analysis.run_table import RunRow


def command(
    folders: Annotated[
        list[Path] | None, Argument(help="Folder of run folders, searched to any depth. [default: .]", metavar="DIR")
    ] = None,
    sort: Annotated[
        Literal["path", "best", "minutes", "step"], Option(help="Order; best: the best run of each task first.")
    ] = "path",
    json: Json = False,
) -> None:
    """List runs: task, state, best score, minutes, and the settings that differ.

    The score is that of the development set by which the run chose its best checkpoint. A run that was killed is
    "interrupted": the same command resumes it. Settings are compared between runs of one task, and shown below a run if
    more than half of them have another value; --json has all that differ.

    \b
    Examples:
      attnkit runs
      attnkit runs . --sort best
      attnkit runs run1 run2 --json
    """
    from attnkit.analysis.run_table import list_runs
    from attnkit.progress import console

    rows = list_runs(folders or [Path()], sort)
    if json:
        console.result(dumps([as_tree(row) for row in rows], ensure_ascii=False))
    else:
        console.result(console.printable(as_text(rows, console.width())))


def as_tree(row: RunRow) -> dict[str, Any]:
    """Return a row as plain data; a score that JSON lacks is null."""
    best = None if row.best is None or not math.isfinite(row.best) else row.best
    return {**asdict(row), "path": str(row.path), "differs": dict(row.differs), "best": best}


def as_text(rows: Sequence[RunRow], width: int) -> str:
    """Format the table; differing settings and problems follow on lines of their own."""
    from attnkit.analysis.run_table import unusual
    from attnkit.plotting.progress_text import duration, scores

    head = ("run", "task", "state", "best", "step", "time")
    cells = [
        (
            str(row.path),
            row.task or "?",
            row.state,
            "" if row.best is None or row.metric is None else scores({row.metric: row.best}),
            f"{row.step:,}" if row.step else "",
            "" if row.minutes is None else duration(60 * row.minutes),
        )
        for row in rows
    ]
    widths = [max(len(line[k]) for line in (head, *cells)) for k in range(len(head))]
    aligned = "<<<<>>"
    lines = ["  ".join(f"{cell:{a}{n}}" for cell, a, n in zip(head, aligned, widths, strict=True)).rstrip()]
    for row, line, settings in zip(rows, cells, unusual(rows), strict=True):
        lines.append("  ".join(f"{cell:{a}{n}}" for cell, a, n in zip(line, aligned, widths, strict=True)).rstrip())
        notes = [" ".join(f"{name}={_shown(value)}" for name, value in settings.items()), row.problem]
        for note in filter(None, notes):
            lines += textwrap.wrap(note, max(40, width - 2), initial_indent="  ", subsequent_indent="  ",
                                   break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return "\n".join(lines)


def _shown(value: object) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) and value and " " not in value else dumps(value, ensure_ascii=False)
