"""Progress in a notebook: a bar with a loss curve that redraws itself. Torch-free.

The output is HTML and SVG that the running IPython displays and replaces; no widget package is needed. IPython is
imported only where it is running already.
"""

from __future__ import annotations

import sys
import time
from typing import Any

from attnkit.data.prepared_dir import StatusEvent
from attnkit.engine.events import TrainingFinished, TrainingProgress, TrainingStarted, ValidationFinished
from attnkit.plotting.attention_maps import display_text
from attnkit.plotting.curves import Curve, GrowingCurve
from attnkit.plotting.html import escape
from attnkit.plotting.html.chart import line_chart
from attnkit.plotting.progress_text import Clock, progress_bar, scores
from attnkit.progress.training import loop_text, started_lines, step_text
from attnkit.training.records import StepRecord

INTERVAL = 0.5  #: minimum seconds between two drawings
_SMALL = "font-size:12px;opacity:0.8"


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook; imports nothing."""
    running = sys.modules.get("IPython")
    shell = None if running is None else running.get_ipython()
    return getattr(shell, "kernel", None) is not None


class LiveOutput:
    """An output of the current cell that can be replaced."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._last = 0.0

    def show(self, html: str, plain: str) -> None:
        """Show HTML, or plain text where there is none."""
        from IPython.display import display

        self._last = time.monotonic()
        content = {"text/html": html, "text/plain": plain}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    @property
    def is_due(self) -> bool:
        """Whether the last drawing is old enough for what is shown at intervals."""
        return time.monotonic() - self._last >= INTERVAL

    @property
    def is_used(self) -> bool:
        """Whether anything was shown."""
        return self._handle is not None


class NotebookStatus:
    """A line of progress that is replaced, and is empty at the end."""

    def __init__(self) -> None:
        self._output = LiveOutput()

    def update(self, text: str) -> None:
        """Show ``text``, unless the last update was only a moment ago."""
        if self._output.is_due:
            shown = display_text(text)
            self._output.show(f'<div style="{_SMALL}">{escape(shown)}</div>', shown)

    def clear(self) -> None:
        """Erase the line."""
        if self._output.is_used:
            self._output.show("", "")


class TrainingBar:
    """A bar of a training run with its loss curve and development scores."""

    def __init__(self) -> None:
        self._output, self._clock = LiveOutput(), Clock()
        self._title, self._text, self._done = "", "", 0.0
        self._losses, self._dev_losses = GrowingCurve(), GrowingCurve()
        self._scored = ""  # development scores of the last evaluation

    def update(self, text: str) -> None:
        """Show what is done before training, at intervals."""
        self._text = text
        if self._output.is_due:
            self._draw()

    def show(self, event: Any) -> bool:
        """Show an event of progress; return False for any other."""
        due = self._output.is_due
        if isinstance(event, StatusEvent):
            self._text, due = event.text, True
        elif isinstance(event, TrainingStarted):
            counts, self._title = started_lines(event)
            self._text, due = counts, True
        elif isinstance(event, StepRecord):
            self._text, self._done = step_text(event, self._clock), event.progress
            self._losses.add(event.step, event.loss)
        elif isinstance(event, TrainingProgress):
            self._text, self._done = loop_text(event), event.done
            self._losses.add(event.step, event.loss)
        elif isinstance(event, ValidationFinished):
            self._clock.skip()
            record = event.record
            self._scored = f"step {record.step:,}: {scores(record.metrics)}{' (best so far)' * record.improved}"
            self._dev_losses.add(record.step, record.metrics.get("loss", float("nan")))
        elif isinstance(event, TrainingFinished):
            self._done, due = 1.0, True
            self._text = f"done: {event.step:,} steps; best: {event.best}"
            self._scored = scores(event.metrics)
        else:
            return False
        if due:
            self._draw()
        return True

    def close(self, error: BaseException | None) -> None:
        """Draw the last state; say so if an error ended the run."""
        if error is not None and self._output.is_used:
            self._text = f"stopped by {type(error).__name__}: {self._text}"
            self._draw()

    def clear(self) -> None:
        """Do nothing: a bar stays above what follows it."""

    def _draw(self) -> None:
        plain = [text for text in (self._title, f"{progress_bar(self._done)}  {self._text}", self._scored) if text]
        self._output.show(self.html(), "\n".join(plain))

    def html(self) -> str:
        """Return the bar as an HTML fragment."""
        percent = f"{100 * self._done:.0f} %"
        track = "height:8px;border-radius:4px;background:rgba(127,127,127,0.3);margin:4px 0"
        bar = f'<div style="width:{100 * self._done:.1f}%;height:8px;border-radius:4px;background:#2f7fbf"></div>'
        curves = [Curve("training loss", "", self._losses.x, self._losses.y)]
        if self._dev_losses.x:
            curves.append(Curve("development loss", "", self._dev_losses.x, self._dev_losses.y))
        return "".join(
            [
                '<div style="max-width:580px;font-family:system-ui,sans-serif">',
                f'<div style="font-size:13px">{escape(display_text(self._title))}</div>' if self._title else "",
                f'<div role="progressbar" aria-label="training" aria-valuenow="{100 * self._done:.0f}" ',
                f'style="{track}">{bar}</div>',
                f'<div style="{_SMALL}">{percent} &nbsp; {escape(display_text(self._text))}</div>',
                f'<div style="{_SMALL}">{escape(display_text(self._scored))}</div>' if self._scored else "",
                line_chart(curves, x_label="step", title="loss by step"),
                "</div>",
            ]
        )
