"""``attnkit verify``: integrity check of run folders."""

from __future__ import annotations

import textwrap
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from attnkit.errors import RunError
from attnkit.progress import console

if TYPE_CHECKING:
    from attnkit.analysis.verify import VerificationReport

_WIDTH = 80


def command(
    runs: Annotated[list[Path], Argument(help="Run folder.", metavar="RUN")],
    json: Annotated[bool, Option(help="One JSON object per run, in a list.")] = False,
) -> None:
    """Check every byte of a run folder: exit 0 if it is intact, 4 if not.

    Checks the checkpoints, logs, copied files and encoded text of the run. Nothing is modified. A run that is still
    training can be verified too; a message reports that it is in use. A line of timings.jsonl that a power cut left
    incomplete is not damage.

    \b
    Examples:
      attnkit verify run
      attnkit verify run-1 run-2 --json
    """
    from attnkit.analysis.verify import verify_runs

    n_bad = 0
    for verified in verify_runs(runs):
        if verified.user is not None:
            console.info(f"{verified.path} is in use by {verified.user}; only complete files are checked")
        if json:
            console.result(dumps(verified.to_dict()))
        else:
            console.result(as_text(verified))
        n_bad += verified.n_bad
    if n_bad:
        raise typer.Exit(RunError.exit_code)


def as_text(verified: VerificationReport) -> str:
    """Format the report: one row per part of the run (BAD if damaged), and a summary."""
    width, lines = max(len(thing.name) for thing in verified.things), []
    for thing in verified.things:
        begin = f"{'good' if thing.good else 'BAD ':4}  {thing.name:{width}}  "
        text = console.printable(" ".join(thing.text.splitlines()))  # keys and names may come from a damaged file
        lines += textwrap.wrap(text, _WIDTH, initial_indent=begin, subsequent_indent=" " * len(begin))
    newest = f"the newest good checkpoint is {verified.newest}" if verified.newest else "no good checkpoint"
    n_things, n_bad = len(verified.things), verified.n_bad
    outcome = f"{n_bad} of {n_things} parts damaged" if n_bad else f"all {n_things} parts are good"
    summary = console.printable(f"{verified.path}: {outcome}; {newest}")
    lines += textwrap.wrap(summary, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)
