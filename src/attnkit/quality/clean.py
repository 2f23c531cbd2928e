"""Cleaning of a parallel corpus: filters, repairs and realignment.

Files are read in spans (`judgement.py`), each judged by itself, and written in parts. After each part,
``progress.json`` holds the sizes of the files so far: a cleaning that was killed resumes after its last whole part, and
the result is the same to the byte. Takes some 100 bytes per kept pair to know duplicates, beside the memory of a span.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnkit.errors import DataError, RunError, UsageError
from attnkit.io import atomic
from attnkit.io.resumable import ResumableFiles
from attnkit.quality.check import fold, is_copy
from attnkit.quality.config import CleanConfig
from attnkit.quality.damage import repair_mojibake
from attnkit.quality.judgement import MIN_ODDS, Span, judge_span, kinds_of, read_spans
from attnkit.quality.lines import Ints
from attnkit.quality.pair_filters import Pair, find_fault, usual_ratio
from attnkit.text.lines import OPENERS, LineCounts, check_not_streams, guess, is_utf16, open_binary, opened

PART = 1 << 16  #: pairs written together
PROGRESS = "progress.json"
REPORT = "report.json"
DROPPED = "dropped.tsv"
Score = Callable[[list[str], list[str]], list[float]]
"""Function from source and target lines to log-probabilities per target token."""


@dataclass
class CleanReport:
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


def clean(
    request: CleanRequest, score: Score | None = None, progress: Callable[[int], None] = lambda n_lines: None
) -> CleanReport:
    """Clean two files into a folder; resume an interrupted cleaning.

    Args:
        request: Files and settings.
        score: Scores of pairs by a trained run, for ``config.min_log_prob``.
        progress: Called with the number of source lines done.

    Raises:
        DataError: No pair is left.
        UsageError: The folder holds something else, or settings changed.
    """
    check_not_streams([request.src, request.tgt])
    for path in (request.src, request.tgt):
        open_binary(path).close()  # report a missing file before anything is written
        check_not_utf16(path)
    names = output_names(request.src, request.tgt)
    output = _Output(request, names)
    progress(output.report.n_src)
    filters = _Filters(request.config, output.kept_pairs(), score)
    for number, span in enumerate(read_spans(request.src, request.tgt)):
        if number < output.n_spans:
            filters.begin_span(span, None)  # done before, but the usual ratio comes from the first span
            continue
        plan = _Pairing(span, request.config)
        if number == 0 and request.config.min_evidence is not None and plan.evidence is None:
            what = "the files do not show which lines belong together, so there is no evidence to ask for"
            raise DataError(what, where="--min-evidence", help="remove --min-evidence")
        filters.begin_span(span, plan)
        for begin in range(0, max(1, len(span.src)), PART):
            if span.start + begin < output.report.n_src:
                continue
            end = min(len(span.src), begin + PART)
            output.write(list(filters.judge(plan, begin, end)), plan, end == len(span.src))
            progress(output.report.n_src)
    return output.finish()


def check_not_utf16(path: Path) -> None:
    """Raise ``DataError`` for a file of UTF-16, which would be read as NULs."""
    with opened(path, LineCounts()) as stream:
        head = stream.read(4096)
    if is_utf16(head) or head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("invalid UTF-8", where=f"{path}:1", help=guess(head, "utf-16"))


def output_names(src: Path, tgt: Path) -> tuple[str, str]:
    """Return the names of the cleaned files: those of the inputs, uncompressed."""
    names = [path.stem if path.suffix.lower() in OPENERS else path.name for path in (src, tgt)]
    return (f"{names[0]}.src", f"{names[1]}.tgt") if names[0] == names[1] else (names[0], names[1])


@dataclass(frozen=True)
class Judged:
    """A source line and what became of it."""

    line: int  #: from 1
    pair: Pair
    reason: str | None  #: why it is dropped; None: kept
    moved: bool = False  #: its target was in another line
    repaired: bool = False


class _Pairing:
    """Target line of each source line of a span, or the reason to drop it."""

    def __init__(self, span: Span, config: CleanConfig) -> None:
        self.span = span
        judged = judge_span(span)
        self.evidence = judged.alignment.evidence if judged.alignment.is_judged else None
        n = len(span.src)
        self.partners: Ints = np.arange(n)
        self.reasons: list[str | None] = [None] * n
        for kind, segment in kinds_of(judged):
            if segment.shift is not None and config.realign:
                self.partners[segment.begin : segment.end] += segment.shift
            else:
                reason = "misaligned" if segment.shift is not None else kind
                self.reasons[segment.begin : segment.end] = [reason] * segment.n_lines
        outside = (self.partners < 0) | (self.partners >= len(span.tgt))
        for line in np.flatnonzero(outside).tolist():
            self.partners[line] = -1
            self.reasons[line] = self.reasons[line] or "no_target"
        used = np.unique(self.partners[self.partners >= 0])
        self.n_unused = len(span.tgt) - len(used)
        self.against = judged.languages.against
        self.scripts = judged.languages.wrong_scripts


class _Filters:
    """Filters of pairs, in the order in which they are asked."""

    def __init__(self, config: CleanConfig, kept: Iterator[Pair], score: Score | None) -> None:
        self._config, self._score = config, score
        self._seen: set[bytes] = set()
        self._ratio: float | None = None
        for pair in kept:
            self._seen.add(self._key(pair))

    def begin_span(self, span: Span, plan: _Pairing | None) -> None:
        """Take the usual ratio of lengths from the first span."""
        if self._ratio is None:
            judged = plan or _Pairing(span, self._config)
            lines = np.flatnonzero(judged.partners >= 0)[:10_000].tolist()
            self._ratio = usual_ratio((span.src[i], span.tgt[int(judged.partners[i])]) for i in lines)

    def judge(self, plan: _Pairing, begin: int, end: int) -> Iterator[Judged]:
        """Yield the lines [begin, end) of a span, judged."""
        evidence = self._evidence(plan, begin, end)
        judged = []
        for line in range(begin, end):
            partner = int(plan.partners[line])
            pair = plan.span.src[line], plan.span.tgt[partner] if partner >= 0 else ""
            mended = (repair(pair[0]), repair(pair[1])) if self._config.repair else pair
            reason = plan.reasons[line] or self._reason(mended, plan, line, partner)
            if reason is None and evidence is not None and evidence[line - begin] < (self._config.min_evidence or 0):
                reason = "low_evidence"
            moved, repaired = partner != line, mended != pair
            judged.append(Judged(plan.span.start + line + 1, mended, reason, moved, repaired))
        if self._score is not None and self._config.min_log_prob is not None:
            judged = self._scored(judged, self._score, self._config.min_log_prob)
        yield from map(self._without_repeats, judged)

    def _evidence(self, plan: _Pairing, begin: int, end: int) -> NDArray[np.float64] | None:
        if self._config.min_evidence is None or plan.evidence is None:
            return None
        lines = np.arange(begin, end)
        scores = np.full(len(lines), np.inf)
        paired = np.flatnonzero(plan.partners[lines] >= 0)
        scores[paired] = plan.evidence.of(lines[paired], plan.partners[lines[paired]])
        return scores

    def _reason(self, pair: Pair, plan: _Pairing, line: int, partner: int) -> str | None:
        config, (src, tgt) = self._config, pair
        fault = find_fault(src, tgt, self._ratio or 1.0, config.max_ratio)
        if fault is not None and fault != "odd_ratio":
            return fault
        if "\ufffd" in src or "\ufffd" in tgt:
            return "undecodable"
        lengths = len(src), len(tgt)
        if max(lengths) > config.max_characters or min(lengths) < config.min_characters:
            return "long" if max(lengths) > config.max_characters else "short"
        if fault is not None:
            return fault
        if config.drop_copies and is_copy(src, tgt):
            return "copied"
        if config.check_languages:
            against = plan.against[0][line], plan.against[1][partner]
            if min(against) > 0 and sum(against) > MIN_ODDS:
                return "swapped"
            if max(against) > MIN_ODDS:
                return "source_in_target_language" if against[0] > against[1] else "target_in_source_language"
            if plan.scripts[0][line] or plan.scripts[1][partner]:
                return "other_script"
        return None

    def _scored(self, judged: list[Judged], score: Score, least: float) -> list[Judged]:
        kept = [one for one in judged if one.reason is None]
        scores = score([one.pair[0] for one in kept], [one.pair[1] for one in kept])
        low = {one.line for one, value in zip(kept, scores, strict=True) if value < least}
        return [replace(one, reason="low_log_prob") if one.line in low else one for one in judged]

    def _without_repeats(self, one: Judged) -> Judged:
        if one.reason is not None or self._config.duplicates == "keep":
            return one
        key = self._key(one.pair)
        if key in self._seen:
            return replace(one, reason="duplicate" if self._config.duplicates == "exact" else "near_duplicate")
        self._seen.add(key)
        return one

    def _key(self, pair: Pair) -> bytes:
        is_exact = self._config.duplicates == "exact"
        sides = (side.encode("utf-8", "surrogatepass") if is_exact else fold(side) for side in pair)
        return blake2b(b"\n".join(sides), digest_size=12).digest()


# With its semicolon: in an address, &copy=1 is no reference.
_REFERENCE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def repair(line: str) -> str:
    """Return a line without mojibake, character references and odd spaces, in NFC."""
    if not line.isascii() or "&" in line:
        unescaped = _REFERENCE.sub(lambda found: html.unescape(found[0]), repair_mojibake(line))
        line = unicodedata.normalize("NFC", unescaped)
    return " ".join(line.split()) if not line.isprintable() or "\xa0" in line else line


class _Output:
    """The folder that a cleaning writes."""

    def __init__(self, request: CleanRequest, names: tuple[str, str]) -> None:
        self._folder = folder = request.output
        inputs = [path for path in (request.src, request.tgt) if path.is_file()]
        self._settings = {
            "files": [[path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in (request.src, request.tgt)],
            "scored_by": request.scored_by,
            **request.config.model_dump(mode="json"),
        }
        for path in inputs:
            if path.resolve().parent == folder.resolve():
                raise UsageError(f"{path} lies in the output folder", help="choose another folder with -o")
        if folder.exists():
            if not folder.is_dir() or not self._is_own(folder, names):
                raise UsageError(f"{folder} holds other files", help="choose another folder with -o")
            if request.overwrite:
                # Earlier results stay until new ones take their places.
                for name in (PROGRESS, REPORT, *(f"{name}.part" for name in (*names, DROPPED))):
                    atomic.remove_tree(folder / name)
            elif (folder / REPORT).is_file() and not (folder / PROGRESS).is_file():
                raise UsageError(f"{folder} is finished", help="add --overwrite, or choose another folder with -o")
        atomic.make_dirs(folder)
        files = [folder / name for name in (*names, DROPPED)]
        first = {"report": asdict(CleanReport()), "spans": 0}
        self._files = ResumableFiles(folder / PROGRESS, files, self._settings, first)
        try:
            self.report, self.n_spans = CleanReport(**self._files.state["report"]), int(self._files.state["spans"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{folder / PROGRESS} is damaged", help="add --overwrite to start again") from error

    @staticmethod
    def _is_own(folder: Path, names: tuple[str, str]) -> bool:
        """Return whether a folder holds only what a cleaning writes."""
        outputs = (*names, DROPPED)
        own = {PROGRESS, REPORT, *outputs, *(f"{name}.part" for name in outputs)}
        found = {entry.name for entry in folder.iterdir()}
        begun = any((folder / name).is_file() for name in (PROGRESS, REPORT))
        # A job killed at its very start leaves empty parts.
        empty = all(name.endswith(".part") and not (folder / name).stat().st_size for name in found)
        return found <= own and (begun or empty)

    def kept_pairs(self) -> Iterator[Pair]:
        """Yield the pairs written before, to know their duplicates."""
        # Byte for byte: a reader of text would drop a carriage return or a byte-order mark that was kept.
        with open_binary(self._files.parts[0]) as src, open_binary(self._files.parts[1]) as tgt:
            for left, right in zip(src, tgt, strict=True):
                yield left[:-1].decode(), right[:-1].decode()

    def write(self, part: Sequence[Judged], plan: _Pairing, is_last: bool) -> None:
        """Append a part, durably, then its counts."""
        report = self.report
        kept = [one for one in part if one.reason is None]
        dropped = [one for one in part if one.reason is not None]
        reasons = Counter(report.dropped) + Counter(str(one.reason) for one in dropped)
        report.n_src += len(part)
        report.kept += len(kept)
        report.dropped = dict(sorted(reasons.items()))
        report.realigned += sum(one.moved for one in kept)
        report.repaired += sum(one.repaired for one in kept)
        if is_last:
            self.n_spans += 1
            report.n_tgt += len(plan.span.tgt)
            report.unused_targets += plan.n_unused
        texts = (
            "".join(f"{one.pair[0]}\n" for one in kept),
            "".join(f"{one.pair[1]}\n" for one in kept),
            "".join("\t".join([str(one.line), str(one.reason), *map(_cell, one.pair)]) + "\n" for one in dropped),
        )
        self._files.append(texts, {"report": asdict(report), "spans": self.n_spans})

    def finish(self) -> CleanReport:
        """Give the files their names and write the report."""
        report = self.report
        if not report.kept:
            worst = max(report.dropped.items(), key=lambda item: item[1], default=("no lines", 0))
            self._write_report()
            self._files.finish()
            why = f"most were dropped as {worst[0]}: relax that filter; {self._folder / DROPPED} lists all"
            raise DataError("no pair is left", help=why)
        self._write_report()
        self._files.finish()
        return report

    def _write_report(self) -> None:
        """Write the report, before the record of the job is removed."""
        values = {**asdict(self.report), **self._settings}
        atomic.write_text(self._folder / REPORT, json.dumps(values, indent=1) + "\n")


def _cell(text: str) -> str:
    return " ".join(text.replace("\t", " ").splitlines())
