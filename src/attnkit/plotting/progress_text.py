"""Text for training progress: speed, scores, sizes and durations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnkit.quality.findings import CheckReport

_SCORES = {
    "loss": "loss {:.3f}",
    "perplexity": "ppl {:.2f}",
    "bleu": "BLEU {:.1f}",
    "chrf": "chrF {:.1f}",
    "exact": "exact {:.1f} %",
    "unigram_loss": "unigram loss {:.3f}",
    "error": "error {:.4g}",
    "mean_error": "mean baseline {:.4g}",
    "explained": "explained {:.1%}",
    "accuracy": "accuracy {:.1f} %",
    "macro_f1": "macro F1 {:.1f} %",
    "precision": "P {:.1f}",
    "recall": "R {:.1f}",
    "f1": "F1 {:.1f} %",
    "top_5": "top 5 {:.1f} %",
    "next_accuracy": "next sentence {:.1f} %",
    "detection_loss": "detection loss {:.3f}",
    "generator_loss": "generator loss {:.3f}",
    "generator_accuracy": "generator accuracy {:.1f} %",
    "n_words": "{:,} vectors",
    "dim": "dimension {}",
    "words_per_second": "{:,.0f} words/s",
}


class Clock:
    """Smoothed throughput in non-padding tokens per second, and time left."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()
        self._rate = 0.0
        self._first: float | None = None

    def tick(self, n_tokens: int, progress: float) -> tuple[float, float]:
        """Record a step; return tokens per second and seconds left."""
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
        """Exclude the time since the last step (an evaluation) from the throughput."""
        self._last = time.monotonic()


def progress_bar(done: float) -> str:
    """Return a bar of 8 columns and the percentage, for ``done`` from 0 to 1."""
    return "█" * round(8 * done) + "░" * (8 - round(8 * done)) + f" {done:4.0%}"


def data_check_lines(report: CheckReport) -> list[str]:
    """Return the verdict of a data check, unless good, and the findings, one per line."""
    lines = [f"warning: {report.verdict}"] if report.severity == "warning" else []
    for finding in report.findings:
        if finding.name == "few":  # the verdict says it
            continue
        path = report.tgt if finding.side == "target" else report.src
        place = f", first in line {finding.first_line:,}" if finding.first_line else ""
        lines.append(f"{path}: {'left out: ' if finding.dropped else ''}{finding.count:,} {finding.described}{place}")
    return lines


def scores(metrics: Mapping[str, float]) -> str:
    """Format scores on one line."""
    return "  ".join(
        elapsed(60 * value) if name == "minutes" else _SCORES.get(name, _other(name)).format(value)
        for name, value in metrics.items()
    )


def _other(name: str) -> str:
    """Return the format of a score without its own.

    Such are BLEU of one direction, `en-de`, and the accuracy on one of several files.
    """
    if name.startswith("accuracy_"):
        return f"accuracy on file {name[9:]} {{:.1f}} %"
    is_direction = name.startswith("bleu_")
    return name[5:].replace("_", "-") + " {:.1f}" if is_direction else name + " {:.3f}"


def score_name(name: str) -> str:
    """Return the display name of a score.

    >>> score_name("bleu"), score_name("top_5"), score_name("other_score")
    ('BLEU', 'top 5', 'other score')
    """
    return _SCORES.get(name, name.replace("_", " ")).split(" {")[0]


def count(number: float) -> str:
    """Format a count: 950, 12.4k, 7.8M, 1.2G."""
    return _with_unit(number, ("G", "M", "k", ""))


def size(n_bytes: float) -> str:
    """Format a number of bytes: 950 B, 12.4 kB, 7.8 MB."""
    return _with_unit(n_bytes, (" GB", " MB", " kB", " B"))


def _with_unit(number: float, units: Sequence[str]) -> str:
    for unit, divisor in zip(units, (1e9, 1e6, 1e3), strict=False):
        if abs(number) >= divisor:
            return f"{number / divisor:.1f}{unit}"
    return f"{number:.0f}{units[-1]}"


def duration(seconds: float) -> str:
    """Format a duration in seconds: 8s, 2m 05s, 1h 02m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def elapsed(seconds: float) -> str:
    """Format a time spent, in seconds: 0.4s, 8.3s, 12s, 2m 05s, 1h 02m."""
    return f"{seconds:.1f}s" if seconds < 9.95 else duration(seconds)


SAMPLE_INTERVAL = 60.0  #: minimum seconds between two prints
MAX_SAMPLE_LENGTH = 67  #: characters per sentence, for lines of 80 columns


class SamplePrinter:
    """Printer of the samples of the first evaluation, later ones, and the last.

    Later samples are printed at intervals. A short run evaluates every few seconds, and all its samples would hide the
    scores.
    """

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._printed_at = -SAMPLE_INTERVAL
        self._pending: Sequence[tuple[str, str, str]] = ()

    def add(self, samples: Sequence[tuple[str, str, str]]) -> None:
        """Print samples, or keep them if others were printed less than a minute ago."""
        self._pending = samples
        if self._clock() - self._printed_at >= SAMPLE_INTERVAL:
            self._print()

    def finish(self) -> None:
        """Print the samples of the last evaluation, if they were not."""
        self._print()

    def _print(self) -> None:
        if self._pending:
            self._say("\n\n".join(map(_as_text, self._pending)))
            self._pending, self._printed_at = (), self._clock()


def _as_text(sample: tuple[str, str, str]) -> str:
    limit = MAX_SAMPLE_LENGTH
    shown = [text if len(text) <= limit else f"{text[: limit - 1]}…" for text in sample]
    named = zip(("source", "reference", "model"), shown, strict=True)
    return "\n".join(f"  {name:>9}  {text}" for name, text in named)
