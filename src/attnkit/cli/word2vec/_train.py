"""What ``attnkit word2vec train`` does once it knows what to train: run it, show how it goes and how it ended.

Holds no command of its own.
"""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING

from attnkit.cli import console
from attnkit.config import flatten

if TYPE_CHECKING:
    from attnkit.runtime.stops import StopRequests
    from attnkit.tasks.word2vec.config import Word2VecConfig
    from attnkit.tasks.word2vec.estimate import Estimate
    from attnkit.tasks.word2vec.resolve import Resolved
    from attnkit.tasks.word2vec.train import Event, Word2VecFinished, Word2VecStarted
    from attnkit.tasks.word2vec.trainer import Progress


def run(config: Word2VecConfig, output: Path, overwrite: bool, json: bool) -> None:
    """Train, showing how it goes."""
    from attnkit.runtime.stops import StopRequests
    from attnkit.tasks.word2vec.train import Word2VecFinished, Word2VecRequest, train

    with StopRequests() as stop, console.StatusLine() as line:
        events = train(Word2VecRequest(config, output, overwrite, stop, line.update))
        shown = Shown(line, stop)
        try:
            for event in events:
                if isinstance(event, Word2VecFinished):
                    line.clear()
                    console.result(dumps(asdict(event)) if json else ended(event, output))
                else:
                    shown.take(event)
        except (KeyboardInterrupt, SystemExit) as asked:
            events.throw(asked)  # where it was not training that was interrupted, but the telling of it


class Shown:
    """The status line of a run."""

    def __init__(self, line: console.StatusLine, stop: StopRequests) -> None:
        """Draw on ``line``; from the first piece on a signal is a wish, which ``stop`` remembers."""
        self._line, self._stop = line, stop
        self._speed = 0.0

    def take(self, event: Event) -> None:
        """Show an event that is no outcome."""
        from attnkit.data.prepared_dir import StatusEvent, WarningEvent
        from attnkit.tasks.word2vec.train import Word2VecStarted
        from attnkit.tasks.word2vec.trainer import Progress

        if isinstance(event, StatusEvent):
            self._line.say(event.text)
        elif isinstance(event, WarningEvent):
            self._line.say(f"warning: {event.text}")
        elif isinstance(event, Word2VecStarted):
            self._stop.defer()
            self._line.say(begun(event))
        elif isinstance(event, Progress):
            speed = event.words / max(event.seconds, 1e-9)
            self._speed = 0.7 * self._speed + 0.3 * speed if self._speed else speed
            self._line.update(progress_line(event, self._speed))


def begun(event: Word2VecStarted) -> str:
    """Return what is trained on what."""
    text = f"{event.n_raw:,} words of text, {event.n_words:,} get a vector"
    return f"{text}\n{f'going on from piece {event.step:,}' if event.step else 'training'}: {event.where}"


def progress_line(event: Progress, speed: float) -> str:
    """Return how far it is, in at most 80 columns."""
    from attnkit.plotting.progress_text import count, duration

    state = event.state
    full = round(8 * event.done)
    left = (1 - event.done) * state.minutes * 60 / event.done if event.done else 0.0
    bar = "█" * full + "░" * (8 - full)
    return (
        f"{bar} {event.done:4.0%}  loss {event.loss:.4f}  lr {event.rate:.2e}  "
        f"{count(speed)} words/s  {duration(left)} left"
    )


def ended(done: Word2VecFinished, output: Path) -> str:
    """Return the outcome for people."""
    from attnkit.plotting.progress_text import count, duration

    use = f"try: {console.command('word2vec', 'similar', output, 'WORD')}"
    what = f"{done.n_words:,} vectors of {done.dim} numbers"
    if done.already:
        return f"{output} is finished: {what}. --overwrite trains anew.\n{use}"
    took = f"{duration(60 * done.minutes)}, {count(done.words_per_second)} words/s"
    loss = "" if done.loss is None else f", loss {done.loss:.4f}"
    return f"done: {what} in {took}{loss}\n{use}"


def show_plan(resolved: Resolved, json: bool) -> None:
    """Print the resolved configuration with the origin of each value, and about what the run would take.

    What a run would refuse to begin with is refused here too, as far as that can be seen without reading all text.
    """
    from attnkit.tasks.word2vec.estimate import estimate

    found = estimate(resolved.config)
    values = flatten(resolved.config.model_dump(mode="json"))
    if json:
        shown = {key: {"value": value, "origin": resolved.origin(key)} for key, value in values.items()}
        console.result(dumps({"configuration": shown, "plan": None if found is None else asdict(found)}, indent=1))
        return
    rows = [(key, "null" if v is None else str(v), resolved.origin(key)) for key, v in values.items()]
    console.result(f"{console.table(rows)}\n\n{planned(found)}")


def planned(found: Estimate | None) -> str:
    """Return about what a run would take, for people."""
    from attnkit.plotting.progress_text import count, duration, size

    if found is None:
        return "what can be read only once is not read now: nobody knows what it will take"
    n_raw, n_words = (f"{n:,}" if found.share == 1 else f"about {count(n)}" for n in (found.n_raw, found.n_words))
    looked = "all text" if found.share == 1 else f"the first {found.share:.2%} of the text"
    took = "how long it takes depends on what is counted first"
    if found.seconds is not None:
        took = f"about {duration(found.seconds)} of training, give or take a factor of three"
    return (
        f"{n_raw} words of text, {n_words} get a vector (from {looked})\n"
        f"about {size(found.memory)} of memory and {size(found.disk)} of disk\n{took}"
    )
