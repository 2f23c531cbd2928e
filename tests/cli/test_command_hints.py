"""Options of a command whose default is None keep their names and texts, as Python 3.10 gives their annotations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer
from typer import Option
from typer.testing import CliRunner

from attnkit.cli.options import command_hints


def command(
    # Python 3.10 makes this of ``Annotated[Path | None, ...] = None``; later versions leave it as it is.
    source: Optional[Annotated[Path | None, Option("-i", "--input", help="Text.")]] = None,  # noqa: UP045
    strict: Annotated[bool, Option(help="Strict.")] = False,
) -> None:
    """Print what was given."""
    print(source, strict)


def test_options_with_the_default_none_keep_their_names() -> None:
    command.__annotations__ = command_hints(command)
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, ["-i", "a.en", "--strict"])
    assert (done.exit_code, done.stdout) == (0, "a.en True\n")
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert "--input" in shown and "FILE" in shown and "--no-strict" not in shown
