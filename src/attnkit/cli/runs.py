"""``attnkit runs``: a table of the runs below a folder."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import Json

if TYPE_CHECKING:
    from attnkit.analysis.run_table import RunGroup, RunRow


def command(
    folders: Annotated[
        list[Path] | None, Argument(help="Folder of run folders, searched to any depth. [default: .]", metavar="DIR")
    ] = None,
    sort: Annotated[
        Literal["path", "best", "minutes", "step"], Option(help="Order; best: the best run of each task first.")
    ] = "path",
    seeds: Annotated[bool, Option(help="One row for runs that differ in the seed alone: mean, deviation.")] = False,
    json: Json = False,
) -> None:
    """List runs: task, state, best score, minutes, and the settings that differ.

    The score is that of the development set by which the run chose its best checkpoint. A run that was killed is
    "interrupted": the same command resumes it. Settings are compared between runs of one task, and shown below a run if
    more than half of them have another value; --json has all that differ. With --seeds, the score of a row is the mean
    of its finished runs and the standard deviation of a single run.

    \b
    Examples:
      attnkit runs
      attnkit runs . --sort best
      attnkit runs run1 run2 --json
      attnkit runs . --seeds
    """
    from attnkit.analysis.run_table import group_by_seed, list_runs, sort_groups
    from attnkit.progress import console

    rows = list_runs(folders or [Path()], sort)
    groups = group_by_seed(rows) if seeds else []
    groups = sort_groups(groups) if sort == "best" else groups
    if json:
        console.result(dumps([row.to_dict() for row in (groups if seeds else rows)]))
    else:
        text = groups_text(groups, console.width()) if seeds else as_text(rows, console.width())
        console.result(console.printable(text))


def as_text(rows: Sequence[RunRow], width: int) -> str:
    """Format the table; differing settings and problems follow on lines of their own."""
    from attnkit.plotting.progress_text import duration, scores
    from attnkit.progress import console

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
    text = console.table([head, *cells], indent="", right=(4, 5))
    return with_notes(text, rows, [row.problem for row in rows], width)


def groups_text(groups: Sequence[RunGroup], width: int) -> str:
    """Format the table of configurations, each with the scores of its seeds."""
    from attnkit.plotting.progress_text import score_name
    from attnkit.progress import console

    cells = []
    for group in groups:
        mean = "" if group.mean is None else f"{group.mean:.4g}"
        spread = "" if group.deviation is None else f"± {group.deviation:.2g}"
        scores = " ".join(f"{score:.4g}" for score in group.scores)
        name = str(group.paths[0])
        cells.append((name, str(len(group.paths)), score_name(group.metric or ""), mean, spread, scores))
    head = ("first run", "runs", "score", "mean", "± s.d.", "each")
    text = console.table([head, *cells], indent="", right=(1, 3, 4))
    return with_notes(text, groups, [""] * len(groups), width)


def with_notes(text: str, rows: Sequence[RunRow] | Sequence[RunGroup], problems: Sequence[str], width: int) -> str:
    """Add unusual settings and problems below the lines of a table, which has a head."""
    from attnkit.analysis.run_table import unusual

    head, *table = text.splitlines()
    lines = [head]
    for line, settings, problem in zip(table, unusual(rows), problems, strict=True):
        lines.append(line)
        for note in filter(None, (" ".join(f"{name}={_shown(value)}" for name, value in settings.items()), problem)):
            lines += textwrap.wrap(note, max(40, width - 2), initial_indent="  ", subsequent_indent="  ",
                                   break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return "\n".join(lines)


def _shown(value: object) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, str) and value and " " not in value else dumps(value, ensure_ascii=False)
