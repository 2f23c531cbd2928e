"""Progress of a training run in a terminal. Torch-free."""

from __future__ import annotations

from typing import Any

from attnkit.data.prepared_dir import StatusEvent
from attnkit.engine.events import TrainingProgress, TrainingStarted, ValidationFinished
from attnkit.plotting.progress_text import Clock, SamplePrinter, count, duration, progress_bar, scores
from attnkit.progress.console import StatusLine
from attnkit.training.records import StepRecord


class TrainingLines:
    """Lines that follow the events of a training run.

    Lines have at most 80 columns, except for those with paths.
    """

    def __init__(self, line: StatusLine) -> None:
        self._line, self._clock, self._samples = line, Clock(), SamplePrinter(line.say)

    def update(self, text: str) -> None:
        """Show ``text``, unless the last update was only a moment ago."""
        self._line.update(text)

    def clear(self) -> None:
        """Erase the status line."""
        self._line.clear()

    def warn(self, text: str) -> None:
        """Print a warning, after the samples of the last evaluation."""
        self._samples.finish()
        self._line.warn(text)

    def show(self, event: Any) -> bool:
        """Show an event of progress; clear the line and return False for any other."""
        line = self._line
        if isinstance(event, StatusEvent):
            line.say(event.text)
        elif isinstance(event, TrainingStarted):
            for text in started_lines(event):
                line.say(text)
        elif isinstance(event, ValidationFinished):
            star = "  *" if event.record.improved else ""  # best so far
            line.say(f"step {event.record.step:>6,}  dev  {scores(event.record.metrics)}{star}")
            self._samples.add(event.samples)
            self._clock.skip()
        elif isinstance(event, TrainingProgress):
            line.update(f"{progress_bar(event.done)}  {loop_text(event)}")
        elif isinstance(event, StepRecord):
            if event.skipped:
                line.warn(f"step {event.step:,} is skipped: its loss or its gradient is not finite")
            line.update(f"{progress_bar(event.progress)}  {step_text(event, self._clock)}")
        else:
            self._samples.finish()
            line.clear()
            return False
        return True


def started_lines(event: TrainingStarted) -> tuple[str, str]:
    """Return what a run is trained on, and the size of its model."""
    kinds = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in event.counts.items() if n)
    verb = f"resuming from step {event.step:,}" if event.step else "training"
    size = f"{count(event.n_parameters)} parameters, {event.device}, {event.precision}"
    return f"{event.unit}: {kinds}", f"{verb}: {size}"


def step_text(event: StepRecord, clock: Clock) -> str:
    """Return step, loss, learning rate, speed and time left."""
    rate, seconds = clock.tick(event.n_tokens, event.progress)
    loss = "skipped: not finite" if event.skipped else f"loss {event.loss:.3f}"
    speed = f"  {count(rate)} tok/s  {duration(seconds)} left" if rate else ""
    return f"step {event.step:,}  {loss}  lr {event.learning_rate:.1e}{speed}"


def loop_text(event: TrainingProgress) -> str:
    """Return loss, learning rate, speed and time left of a loop without steps."""
    rates = f"lr {event.learning_rate:.2e}  {count(event.speed)} {event.unit}/s"
    return f"loss {event.loss:.4f}  {rates}  {duration(event.seconds_left)} left"
