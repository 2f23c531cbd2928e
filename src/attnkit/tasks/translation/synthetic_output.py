"""Folder of synthetic pairs: kept and dropped pairs in durable parts, a report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attnkit.errors import DataError, RunError
from attnkit.io import atomic
from attnkit.io.job_folder import PROGRESS, REPORT, open_job_folder, read_finished
from attnkit.io.plain_data import PlainResult
from attnkit.io.resumable import ResumableFiles

SOURCES, TARGETS, DROPPED = OUTPUTS = ("pairs.src", "pairs.tgt", "dropped.tsv")


@dataclass
class SyntheticReport(PlainResult):
    """Counts of synthetic pairs; ``kept`` and all ``dropped`` are the pairs made."""

    n_lines: int = 0  #: lines read
    kept: int = 0  #: pairs written
    dropped: dict[str, int] = field(default_factory=dict)  #: reason -> pairs
    reference_bleu: float | None = None
    """Mean sentence BLEU (0 to 100) of the kept translations, if they were chosen by references."""


@dataclass(frozen=True)
class SyntheticPair:
    """A line and its translation, as a training pair."""

    line: int  #: number of the line, from 1
    source: str
    target: str
    reason: str | None = None  #: why it is dropped; None keeps it
    bleu: float | None = None  #: sentence BLEU (0 to 100) against the reference


@contextmanager
def open_synthetic_output(
    folder: Path, settings: Mapping[str, Any], *, overwrite: bool = False
) -> Iterator[SyntheticOutput]:
    """Check and lock a folder of synthetic pairs, and yield its files.

    Without ``overwrite``, a job that is finished with the same settings has its report, and writes nothing.

    Raises:
        SystemFailure: Another process holds the lock.
        UsageError: The folder holds something else, or settings changed.
    """
    finished = None if overwrite else read_finished(folder, OUTPUTS, settings)
    if finished is not None:
        yield SyntheticOutput(folder, settings, finished)
        return
    with open_job_folder(folder, OUTPUTS, overwrite=overwrite):
        yield SyntheticOutput(folder, settings)


class SyntheticOutput:
    """The files of a job, and its counts so far."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], finished: Mapping[str, Any] | None = None) -> None:
        """Start in a locked folder, or resume; ``settings`` must be the same.

        ``finished`` are the counts of a job to which nothing is added.
        """
        self._folder, self._settings = folder, settings
        self._files: ResumableFiles | None = None
        saved: Any = {"report": finished}
        if finished is None:
            files, first = [folder / name for name in OUTPUTS], {"report": asdict(SyntheticReport())}
            self._files = ResumableFiles(folder / PROGRESS, files, settings, first)
            saved = self._files.state
        self.is_resumed = self._files is not None and self._files.is_resumed
        try:
            self.report = SyntheticReport(**saved["report"])
        except (KeyError, TypeError) as error:
            record = REPORT if finished is not None else PROGRESS
            raise RunError(f"{folder / record} is damaged", help="add --overwrite to start again") from error

    def write(self, n_lines: int, pairs: Sequence[SyntheticPair]) -> None:
        """Append the pairs of the next ``n_lines`` lines, durably, then the counts."""
        report, files = self.report, self._files
        assert files is not None, "a finished job is complete"
        kept = [pair for pair in pairs if pair.reason is None]
        dropped = [pair for pair in pairs if pair.reason is not None]
        if scores := [pair.bleu for pair in kept if pair.bleu is not None]:
            before = (report.reference_bleu or 0.0) * report.kept
            report.reference_bleu = (before + sum(scores)) / (report.kept + len(scores))
        report.n_lines += n_lines
        report.kept += len(kept)
        reasons = Counter(report.dropped) + Counter(str(pair.reason) for pair in dropped)
        report.dropped = dict(sorted(reasons.items()))
        texts = (
            "".join(f"{pair.source}\n" for pair in kept),
            "".join(f"{pair.target}\n" for pair in kept),
            "".join(f"{pair.line}\t{pair.reason}\t{_cell(pair.source)}\t{_cell(pair.target)}\n" for pair in dropped),
        )
        files.append(texts, {"report": asdict(report)})

    def finish(self) -> SyntheticReport:
        """Give the files their names and write the report.

        Raises ``DataError`` if no pair is left.
        """
        report = self.report
        if self._files is not None:
            # Before the record of the job is removed: a folder with a report and no record is finished.
            atomic.write_text(self._folder / REPORT, json.dumps({**asdict(report), **self._settings}, indent=1) + "\n")
            self._files.finish()
        if not report.kept:
            worst = max(report.dropped.items(), key=lambda item: item[1], default=("no lines", 0))[0]
            why = f"most were dropped as {worst.replace('_', ' ')}; {self._folder / DROPPED} lists all"
            raise DataError("no pair is left", help=why)
        return report


def _cell(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())
