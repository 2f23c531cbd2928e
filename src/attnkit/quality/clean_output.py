"""The folder of a cleaning: kept and dropped pairs in durable parts, a report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attnkit.errors import DataError, RunError
from attnkit.io import atomic
from attnkit.io.job_folder import PROGRESS, REPORT, check_not_inside, open_job_folder, read_finished
from attnkit.io.lock import FILE_NAME as LOCK
from attnkit.io.plain_data import PlainResult
from attnkit.io.resumable import ResumableFiles
from attnkit.quality.clean_filters import Judged, Pairing
from attnkit.quality.config import CleanConfig
from attnkit.quality.pair_filters import Pair
from attnkit.text.files import OPENERS
from attnkit.text.lines import open_binary
from attnkit.text.sources import source_files, source_stats, text_name

DROPPED = "dropped.tsv"


@dataclass
class CleanReport(PlainResult):
    """Counts of a cleaning; ``n_src`` is the sum of ``kept`` and of all ``dropped``."""

    n_src: int = 0  #: source lines read
    n_tgt: int = 0
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)  #: reason -> source lines
    realigned: int = 0  #: kept pairs whose target was in another line
    repaired: int = 0  #: kept pairs with a repaired line
    unused_targets: int = 0  #: target lines that no source line was paired with


@dataclass(frozen=True)
class CleanRequest:
    """Files and settings of a cleaning."""

    src: Path
    tgt: Path
    output: Path
    config: CleanConfig
    overwrite: bool = False
    scored_by: str = ""  #: identity of what ``score`` uses, such as the checksum of a model
    test: tuple[Path, ...] = ()  #: text of test sets; pairs that overlap it are dropped
    n_processes: int | None = None  #: that judge lines; None: one per core


def output_names(src: Path, tgt: Path) -> tuple[str, str]:
    """Return the names of the cleaned files: those of the inputs, uncompressed.

    They end in ``.src`` and ``.tgt`` where they would be equal, or the names of other files of the folder.
    """
    paths = [Path(text_name(path)) for path in (src, tgt)]
    names = [path.stem if path.suffix.lower() in OPENERS else path.name for path in paths]
    taken = {PROGRESS, REPORT, DROPPED, LOCK, f"{DROPPED}.part", *(f"{name}.part" for name in names)}
    is_unclear = names[0].casefold() == names[1].casefold() or any(name.casefold() in taken for name in names)
    return (f"{names[0]}.src", f"{names[1]}.tgt") if is_unclear else (names[0], names[1])


@contextmanager
def open_clean_output(request: CleanRequest) -> Iterator[CleanOutput]:
    """Check and lock the folder of a cleaning, and yield its files.

    Without ``overwrite``, a cleaning that is finished with the same settings has its report, and writes nothing.

    Raises:
        SystemFailure: Another process holds the lock.
        UsageError: The folder holds something else, or settings changed.
    """
    names = output_names(request.src, request.tgt)
    check_not_inside([*source_files(request.src), *source_files(request.tgt)], request.output)
    finished = None
    if not request.overwrite:
        finished = read_finished(request.output, (*names, DROPPED), clean_settings(request))
    if finished is not None:
        yield CleanOutput(request, names, finished)
        return
    former = _former_names(request.output) if request.overwrite else ()
    with open_job_folder(request.output, dict.fromkeys([*names, DROPPED, *former]), overwrite=request.overwrite):
        yield CleanOutput(request, names)
        for name in set(former) - set(names):
            atomic.remove_tree(request.output / name)


def _former_names(folder: Path) -> tuple[str, ...]:
    """Return the names of the files that an earlier cleaning wrote to a folder."""
    for record in (PROGRESS, REPORT):
        with suppress(OSError, ValueError, KeyError, TypeError):
            values = json.loads((folder / record).read_text(encoding="utf-8"))
            src, tgt = ((values["settings"] if record == PROGRESS else values)["files"])[:2]
            return output_names(Path(Path(src[0]).name), Path(Path(tgt[0]).name))
    return ()


def clean_settings(request: CleanRequest) -> dict[str, Any]:
    """Return what the result depends on: files, the run that scores, and options."""
    return {
        "files": [source_stats(path) for path in (request.src, request.tgt, *request.test)],
        "scored_by": request.scored_by,
        **request.config.model_dump(mode="json"),
    }


class CleanOutput:
    """The files of a cleaning, and its counts."""

    def __init__(
        self, request: CleanRequest, names: tuple[str, str], finished: Mapping[str, Any] | None = None
    ) -> None:
        """Start in a locked folder, or resume.

        ``finished`` are the counts of a cleaning to which nothing is added.
        """
        self._folder, self._settings = request.output, clean_settings(request)
        self._opened: ResumableFiles | None = None
        saved: Any = {"report": finished, "spans": 0}
        if finished is None:
            files = [request.output / name for name in (*names, DROPPED)]
            first = {"report": asdict(CleanReport()), "spans": 0}
            self._opened = ResumableFiles(request.output / PROGRESS, files, self._settings, first)
            saved = self._opened.state
        try:
            self.report, self.n_spans = CleanReport(**saved["report"]), int(saved["spans"])
        except (KeyError, TypeError, ValueError) as error:
            record = request.output / (REPORT if finished is not None else PROGRESS)
            raise RunError(f"{record} is damaged", help="add --overwrite to start again") from error

    @property
    def is_finished(self) -> bool:
        """Whether an earlier process has done all."""
        return self._opened is None

    @property
    def _files(self) -> ResumableFiles:
        assert self._opened is not None, "a finished cleaning is complete"
        return self._opened

    def kept_pairs(self) -> Iterator[Pair]:
        """Yield the pairs written before, to know their duplicates."""
        # Byte for byte: a reader of text would drop a carriage return or a byte-order mark that was kept.
        with open_binary(self._files.parts[0]) as src, open_binary(self._files.parts[1]) as tgt:
            for left, right in zip(src, tgt, strict=True):
                yield left[:-1].decode(), right[:-1].decode()

    def write(self, part: Sequence[Judged], plan: Pairing, is_last: bool) -> None:
        """Append a part, durably, then its counts."""
        report = self.report
        kept = [one for one in part if one.reason is None]
        dropped = [one for one in part if one.reason is not None]
        reasons = Counter(report.dropped) + Counter(str(one.reason) for one in dropped)
        report.n_src += len(part)
        report.kept += len(kept)
        report.dropped = dict(sorted(reasons.items()))
        report.realigned += sum(one.moved for one in kept)
        report.repaired += sum(one.pair != one.original for one in kept)
        if is_last:
            self.n_spans += 1
            report.n_tgt += len(plan.span.tgt)
            report.unused_targets += plan.n_unused
        texts = (
            "".join(f"{one.pair[0]}\n" for one in kept),
            "".join(f"{one.pair[1]}\n" for one in kept),
            "".join("\t".join([str(one.line), str(one.reason), *map(_cell, one.original)]) + "\n" for one in dropped),
        )
        self._files.append(texts, {"report": asdict(report), "spans": self.n_spans})

    def finish(self) -> CleanReport:
        """Give the files their names and write the report."""
        report = self.report
        if not self.is_finished:
            self._write_report()
            self._files.finish()
        if not report.kept:
            worst = max(report.dropped.items(), key=lambda item: item[1], default=("no lines", 0))
            why = f"most were dropped as {worst[0]}: relax that filter; {self._folder / DROPPED} lists all"
            raise DataError("no pair is left", help=why)
        return report

    def _write_report(self) -> None:
        """Write the report, before the record of the job is removed."""
        values = {**asdict(self.report), **self._settings}
        atomic.write_text(self._folder / REPORT, json.dumps(values, indent=1) + "\n")


def _cell(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())
