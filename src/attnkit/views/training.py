"""What a training run says while it works, as strings of at most 80 columns. Knows numbers, no models."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

Counts = Mapping[str, int]


class Clock:
    """Real tokens a second and the time left, smoothed over the last steps."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._rate = 0.0
        self._first: float | None = None

    def tick(self, n_tokens: int, progress: float) -> tuple[float, float]:
        """Take in a step; return tokens a second and seconds left."""
        now = time.monotonic()
        if self._first is None:
            self._first, self._began = progress, now
        else:
            rate = n_tokens / max(now - self._last, 1e-6)
            self._rate = rate if not self._rate else 0.97 * self._rate + 0.03 * rate
        self._last = now
        done = progress - self._first
        return self._rate, (1 - progress) * (now - self._began) / done if done > 0 else 0.0

    def skip(self) -> None:
        """Leave out the time since the last step (an evaluation) from tokens a second."""
        self._last = time.monotonic()


def step_line(record: Any, clock: Clock) -> str:
    """Return the progress line of a step record."""
    rate, left = clock.tick(record.n_tokens, record.progress)
    bar = "█" * round(8 * record.progress) + "░" * (8 - round(8 * record.progress))
    said = "skipped: not finite" if record.skipped else f"loss {record.loss:.3f}"
    return (
        f"{bar} {record.progress:4.0%}  step {record.step:,}  {said}  lr {record.learning_rate:.1e}"
        f"  {count(rate)} tok/s  {duration(left)} left"
    )


def describe(event: Any, clock: Clock) -> list[str]:
    """Return the lasting lines of any other event."""
    kind = type(event).__name__
    if kind == "Stage":
        return [event.text]
    if kind == "Checked":
        return checked(event.report)
    clock.skip()
    if kind == "Begun":
        return begun(event)
    record = event.record
    return [evaluation_line(record.step, record.metrics, record.improved), *samples(event.samples)]


def checked(report: Any) -> list[str]:
    """Say what is odd about two files, a line a finding; nothing where nothing is."""
    lines = []
    for finding in report.findings:
        path = report.tgt if finding.side == "target" else report.src
        place = f", first in line {finding.first_line:,}" if finding.first_line else ""
        fate = "left out: " if finding.dropped else ""
        lines.append(f"{path}: {fate}{finding.count:,} {finding.text}{place}")
    return lines


def begun(event: Any) -> list[str]:
    """Say what is trained on what, and what was left out."""
    dropped = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in event.counts.items() if n)
    verb = f"going on from step {event.step:,}" if event.step else "training"
    where = f"{count(event.n_parameters)} parameters, {event.device}, {event.precision}"
    return [f"pairs: {dropped}", f"{verb}: {where}"]


def evaluation_line(step: int, metrics: Mapping[str, float], improved: bool) -> str:
    """Return one line of scores; a star marks the best so far."""
    names = {"loss": "loss {:.3f}", "perplexity": "ppl {:.2f}", "bleu": "BLEU {:.1f}", "chrf": "chrF {:.1f}"}
    shown = [names.get(name, name + " {:.3f}").format(value) for name, value in metrics.items()]
    return f"step {step:>6,}  dev  " + "  ".join(shown) + ("  *" if improved else "")


def samples(found: Sequence[tuple[str, str, str]], width: int = 80) -> list[str]:
    """Return source, reference and translation of a few sentences, cut to the width."""
    lines = []
    for triple in found:
        for label, text in zip(("source", "reference", "model"), triple, strict=True):
            shown = text if len(text) <= width - 13 else text[: width - 14] + "…"
            lines.append(f"  {label:>9}  {shown}")
        lines.append("")
    return lines[:-1]


def outcome(event: Any, run: str) -> str:
    """Return the last words of a run."""
    if event.already:
        return f"{run} is finished: {event.step:,} steps. A larger limit goes on; --overwrite starts anew."
    shown = evaluation_line(event.step, event.metrics, False).split("dev  ")[-1]
    return f"done: {event.step:,} steps ({event.reason}); best: {event.best}: {shown}\ntry: attnkit translate {run}"


def plan(found: Any) -> str:
    """Return the figures of a dry run."""
    return (
        f"{found.n_pairs:,} pairs, about {count(found.tokens_per_epoch)} tokens and {found.steps_per_epoch:,} steps"
        f" an epoch\n{count(found.n_parameters)} parameters, about {size(found.memory)} of memory,"
        f" {found.device}, {found.precision}"
    )


def count(number: float) -> str:
    """Return a count for people: 950, 12.4k, 7.8M, 1.2G."""
    for unit, divisor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= divisor:
            return f"{number / divisor:.1f}{unit}"
    return f"{number:.0f}"


def size(n_bytes: float) -> str:
    """Return bytes for people."""
    for unit, divisor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= divisor:
            return f"{n_bytes / divisor:.1f} {unit}"
    return f"{n_bytes:.0f} B"


def duration(seconds: float) -> str:
    """Return seconds for people: 8s, 2m 05s, 1h 02m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
