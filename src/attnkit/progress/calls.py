"""Progress of library calls: in a terminal, in a notebook, else none. Torch-free."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from attnkit.progress.console import LineOfProgress, StatusLine
from attnkit.progress.notebook import NotebookStatus, TrainingBar, in_notebook
from attnkit.progress.training import TrainingLines
from attnkit.runtime.signals import launched_rank

Place = Literal["notebook", "terminal", "nowhere"]


class TrainingProgressView(LineOfProgress, Protocol):
    """A view of the events of a training run."""

    def show(self, event: Any) -> bool:
        """Show an event of progress; return False for any other."""


class SilentProgress:
    """Progress that is not shown."""

    def update(self, text: str) -> None:
        """Show nothing."""

    def clear(self) -> None:
        """Do nothing."""

    def show(self, event: Any) -> bool:
        """Show nothing."""
        return False


def place_of_progress(quiet: bool) -> Place:
    """Return where a call shows its progress; nowhere without terminal or notebook.

    Of several processes started by ``torchrun``, only the first shows any.
    """
    if quiet or launched_rank():
        return "nowhere"
    if in_notebook():
        return "notebook"
    return "terminal" if sys.stderr is not None and sys.stderr.isatty() else "nowhere"


@contextmanager
def training_progress(quiet: bool) -> Iterator[TrainingProgressView]:
    """Yield what shows the events of a training call."""
    place = place_of_progress(quiet)
    if place == "notebook":
        bar = TrainingBar()
        try:
            yield bar
        except BaseException as error:
            bar.close(error)
            raise
    elif place == "terminal":
        with StatusLine() as line:
            yield TrainingLines(line)
    else:
        yield SilentProgress()


@contextmanager
def call_progress(quiet: bool) -> Iterator[LineOfProgress]:
    """Yield a line of progress for a call; it is erased at the end."""
    place = place_of_progress(quiet)
    status: LineOfProgress = SilentProgress()
    if place != "nowhere":
        status = NotebookStatus() if place == "notebook" else StatusLine()
    try:
        yield status
    finally:
        status.clear()
