"""How training goes, on stderr: what every command that trains shows while it works. Holds no command of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from attnkit.cli import console

if TYPE_CHECKING:
    from attnkit.text.check_report import CheckReport


def follow(
    events: Iterator[Any], line: console.StatusLine, begin: Callable[[], None], handle: Callable[[Any], None]
) -> None:
    """Show the events that are progress and pass the others, the outcomes, to ``handle``.

    ``begin`` is called when training starts. The status line is cleared before ``handle`` is called.
    """
    from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
    from attnkit.engine.events import TrainingProgress, TrainingStarted, Validated
    from attnkit.plotting import progress_text as views
    from attnkit.training.records import StepRecord

    clock = views.Clock()
    for event in events:
        if isinstance(event, StatusEvent):
            line.say(event.text)
        elif isinstance(event, WarningEvent):
            line.say(f"warning: {event.text}")
        elif isinstance(event, DataCheckEvent):
            show_findings(event.report, line)
        elif isinstance(event, TrainingStarted):
            begin()
            where = f"{event.device}, {event.precision}"
            line.say("\n".join(views.start_lines(event.step, event.n_parameters, event.counts, where, event.unit)))
        elif isinstance(event, Validated):
            scored = event.record
            found = views.evaluation_line(scored.step, scored.metrics, scored.improved)
            line.say("\n".join([found, *views.samples(event.samples)]))
            clock.skip()
        elif isinstance(event, TrainingProgress):
            speed = event.speed, event.seconds_left
            line.update(views.progress_line(event.done, event.loss, event.learning_rate, speed, event.unit))
        elif isinstance(event, StepRecord):
            if event.skipped:
                line.say(f"warning: step {event.step:,} is skipped: its loss or its gradient is not finite")
            speed = clock.tick(event.n_tokens, event.progress)
            loss = None if event.skipped else event.loss
            line.update(views.step_line(event.step, loss, event.learning_rate, event.progress, speed))
        else:
            line.clear()
            handle(event)


def show_findings(report: CheckReport, line: console.StatusLine) -> None:
    """Say what is odd about two files, a line a finding; nothing where nothing is."""
    from attnkit.plotting.progress_text import data_check_line

    for found in report.findings:
        path = report.tgt if found.side == "target" else report.src
        line.say(data_check_line(path, found.count, found.text, found.first_line, found.dropped))
