"""The whole check of two files: findings, evidence of alignment, one verdict.

Files are examined in spans of lines, so that memory is bounded: beside the text of a span, 400 bytes per pair.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from attnkit.io import atomic
from attnkit.quality.alignment import Alignment, Segment, find_alignment
from attnkit.quality.check import check_pair
from attnkit.quality.findings import CheckReport, Finding, Stretch, StretchKind, shorten
from attnkit.quality.findings import Side as FindingSide
from attnkit.quality.languages import Trigrams, find_other_scripts, mean_scores
from attnkit.quality.lines import Floats, Ints, Side, WordNumbers
from attnkit.quality.verdict import give_verdict
from attnkit.runtime.children import end_with_parent, python_command
from attnkit.runtime.signals import usable_cpus
from attnkit.text.config import CheckConfig
from attnkit.text.lines import read_lines
from attnkit.text.tokenizer import Tokenizer

SPAN = 1 << 19  #: lines examined together
_APART = 16 << 20  # bytes of files that are judged in another process
FEW = 1000  #: pairs below which hardly anything is learnt
_MIN_LETTERS = 15  # characters of a line whose language is judged
MIN_ODDS = 12.0  #: nats in favour of the other side's language
_MIN_SHARE = 0.002  # of lines in the other side's language that are reported: names and titles are below it
_MIN_DIFFERENCE = 0.2  # nats per trigram between the sides if they are two languages
_MIN_DISTANCE = 0.7  # nats per trigram by which another language is less probable
_SAMPLED = 5000  # lines of the training files that the sides are compared with


def examine_pair(
    src_path: Path,
    tgt_path: Path,
    config: CheckConfig | None = None,
    *,
    others: tuple[Path, Path | None] | None = None,
    vocabularies: tuple[Tokenizer, Tokenizer] | None = None,
) -> CheckReport:
    """Check two files, judge their alignment and languages, and give a verdict.

    Arguments and errors are those of ``check_pair``.
    """
    with _judge_files(src_path, tgt_path) as judge:  # in another process, if the files are large
        report = check_pair(src_path, tgt_path, config, others=others, vocabularies=vocabularies)
        judged = judge()
    report.stretches, report.separation = judged.stretches, judged.separation
    report.findings += judged.findings
    report.stretches = _merged(report.stretches)
    _add_stretches(report)
    shifted = next((stretch for stretch in report.stretches if stretch.kind == "shifted"), None)
    for finding in report.findings:
        if finding.name == "mismatch" and shifted is not None:  # known better than by the guess of ``check_pair``
            finding.first_line, finding.sample = shifted.first, None
    if others is None and 0 < min(report.n_src, report.n_tgt) < FEW:
        n = min(report.n_src, report.n_tgt)
        report.findings.append(Finding("few", "pairs are few to learn from", "pair", count=n))
    elif others is not None and others[1] is not None and _is_swapped((src_path, tgt_path), (others[0], others[1])):
        text = "lines: source and target are swapped, compared with the training files"
        report.findings.append(Finding("swapped_sides", text, "pair", count=report.n_src))
    give_verdict(report)
    return report


@contextmanager
def _judge_files(src_path: Path, tgt_path: Path) -> Iterator[Callable[[], CheckReport]]:
    """Yield a function that returns what the spans of two files show.

    Large files are judged in a process of their own, while the caller does the rest of the check.
    """
    here = partial(judge_files, src_path, tgt_path)
    size = 0
    with suppress(OSError):  # the reader reports it
        size = min(path.stat().st_size for path in (src_path, tgt_path))
    if size < _APART or usable_cpus() < 2:
        yield here
        return
    code = "from attnkit.quality.doctor import answer; answer()"
    command = python_command(code, str(os.getpid()), str(src_path), str(tgt_path))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def wait() -> CheckReport:
        output, _ = process.communicate()
        if process.returncode:  # killed, perhaps for memory: try again here, which shows the error
            return here()
        values = json.loads(output)
        values["findings"] = [Finding(**finding) for finding in values["findings"]]
        values["stretches"] = [Stretch(**stretch) for stretch in values["stretches"]]
        return CheckReport(**values)

    try:
        yield wait
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def answer() -> None:
    """Judge the files of the command line and print the report."""
    end_with_parent(int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent is asked to stop, and kills this process
    report = judge_files(Path(sys.argv[2]), Path(sys.argv[3]))
    report.remedy = ()
    with atomic.open_output(None) as stream:
        stream.write(json.dumps(asdict(report)))


def judge_files(src_path: Path, tgt_path: Path) -> CheckReport:
    """Return a report of misaligned stretches and foreign lines only."""
    report = CheckReport(str(src_path), str(tgt_path))
    for span in read_spans(src_path, tgt_path):
        _examine_span(report, span)
    return report


@dataclass(frozen=True)
class Span:
    """Lines of both files from a common line number on."""

    start: int  #: number of lines before
    src: list[str]
    tgt: list[str]


def read_spans(src_path: Path, tgt_path: Path) -> Iterator[Span]:
    """Yield the lines of two files in spans; damaged bytes are replaced by U+FFFD."""
    lines = [iter(read_lines(path, on_bad="replace")) for path in (src_path, tgt_path)]
    start = 0
    while True:
        src, tgt = (list(islice(side, SPAN)) for side in lines)
        if not src and not tgt:
            return
        yield Span(start, src, tgt)
        start += SPAN


@dataclass(frozen=True)
class Judgement:
    """What a span shows of itself."""

    alignment: Alignment
    languages: Languages


def judge_span(span: Span) -> Judgement:
    """Judge alignment and languages of a span."""
    words = WordNumbers()
    alignment = find_alignment(Side(span.src, words), Side(span.tgt, words))
    return Judgement(alignment, Languages(span, alignment))


def kinds_of(judgement: Judgement) -> Iterator[tuple[StretchKind, Segment]]:
    """Yield the faulty segments of a span with their kinds."""
    segments = judgement.alignment.segments
    for number, segment in enumerate(segments):
        before = segments[number - 1].shift if number else None
        after = segments[number + 1].shift if number + 1 < len(segments) else None
        if segment.shift == 0:
            continue
        if segment.shift is not None:
            yield "shifted", segment
        elif before is not None and after is not None and _is_gap(before, segment.n_lines, after):
            yield "no_target", segment
        else:
            yield judgement.languages.kind_of(segment.begin, segment.end), segment


def _is_gap(before: int, n_lines: int, after: int) -> bool:
    """Return whether lines without a target explain the change of shift."""
    return after < before and abs(before - after - n_lines) <= 2


def _examine_span(report: CheckReport, span: Span) -> None:
    """Add what a span shows to the report."""
    judged = judge_span(span)
    evidence = judged.alignment.evidence
    if evidence is not None and judged.alignment.is_judged:
        report.separation = min(evidence.separation, report.separation or evidence.separation)
    for kind, segment in kinds_of(judged):
        first = span.start + segment.begin + 1
        report.stretches.append(Stretch(kind, first, first + segment.n_lines - 1, segment.shift))
    judged.languages.add_lines(report)


class Languages:
    """Trigram models of both sides of a span, learnt from its aligned lines."""

    def __init__(self, span: Span, alignment: Alignment) -> None:
        self._span, self._sides = span, (span.src, span.tgt)
        bad = np.zeros(max(len(span.src), len(span.tgt)), np.bool_)
        for segment in alignment.faults:
            if segment.shift is None:
                bad[segment.begin : segment.end] = True
        if bad.mean() > 0.5:
            bad[:] = False
        rest = [[line for line, is_bad in zip(side, bad, strict=False) if not is_bad] for side in self._sides]
        self._models = [Trigrams(side) for side in rest]
        samples = [side[:: max(1, len(side) // 2000)] for side in rest]
        self._usual = [_mean(sample, model.log_probs) for sample, model in zip(samples, self._models, strict=True)]
        odds = self._models[0].log_probs - self._models[1].log_probs
        differ = _mean(samples[0], odds) - _mean(samples[1], odds) > _MIN_DIFFERENCE
        signs = (odds, -odds)
        against = [
            _evidence_against(side, sign) if differ else np.zeros(len(side))
            for side, sign in zip(self._sides, signs, strict=True)
        ]
        self.against = against[0], against[1]
        """Evidence in nats of each line of both sides for the language of the other side."""
        self.scripts = [find_other_scripts(side) for side in self._sides]
        self.wrong_scripts = [wrong for _, wrong in self.scripts]
        """Flags of the lines of both sides that are in another script than their side."""

    def kind_of(self, begin: int, end: int) -> StretchKind:
        """Return the kind of a stretch of pairs that do not belong together."""
        # Nats per trigram by which lines are less probable than usual, under the model of each side.
        distances = [
            [
                usual - _mean(side[begin:end], model.log_probs)
                for usual, model in zip(self._usual, self._models, strict=True)
            ]
            for side in self._sides
        ]
        (src_own, src_other), (tgt_other, tgt_own) = distances
        is_like_target = src_own > _MIN_DISTANCE and src_other < src_own / 2
        is_like_source = tgt_own > _MIN_DISTANCE and tgt_other < tgt_own / 2
        if is_like_target and is_like_source:
            return "swapped"
        if is_like_source:
            return "target_in_source_language"
        if is_like_target:
            return "source_in_target_language"
        if max(src_own, tgt_own) > _MIN_DISTANCE:
            return "source_in_other_language" if src_own > tgt_own else "target_in_other_language"
        return "unrelated"

    def add_lines(self, report: CheckReport) -> None:
        """Add findings of single lines and pairs in another language or script."""
        src, tgt = self.against
        n = min(len(src), len(tgt))
        swapped = np.zeros(max(len(src), len(tgt)), np.bool_)
        swapped[:n] = (src[:n] > 0) & (tgt[:n] > 0) & (src[:n] + tgt[:n] > MIN_ODDS)
        if swapped.sum() >= max(2, _MIN_SHARE * n):
            self._add(report, "swapped_pairs", "pairs have source and target swapped", "pair", np.flatnonzero(swapped))
        else:
            swapped[:] = False
        sides: tuple[FindingSide, FindingSide] = "source", "target"
        for side, against, other, (script, strange) in zip(sides, (src, tgt), sides[::-1], self.scripts, strict=True):
            wrong = np.flatnonzero((against > MIN_ODDS) & ~swapped[: len(against)])
            if len(wrong) >= max(2, _MIN_SHARE * len(against)):
                self._add(report, "other_side", f"lines are in the language of the {other}", side, wrong)
            text = f"lines are in another script than {script}"
            self._add(report, "other_script", text, side, np.flatnonzero(strange))

    def _add(self, report: CheckReport, name: str, text: str, side: FindingSide, lines: Ints) -> None:
        """Count lines (n,) of the span in a finding, which is made if there is none yet."""
        if not len(lines):
            return
        known = next((f for f in report.findings if (f.name, f.side) == (name, side)), None)
        if known is None:
            known = Finding(name, text, side)
            report.findings.append(known)
        first = int(lines[0])
        src, tgt = (side[first] if first < len(side) else "" for side in self._sides)
        sample: str | tuple[str, str] = (src, tgt) if side == "pair" else src if side == "source" else tgt
        known.add(self._span.start + first + 1, sample, count=len(lines))


def _evidence_against(lines: Sequence[str], odds: Floats) -> Floats:
    """Return evidence (N,) that lines are in the other side's language, in nats.

    It is 0 for short lines.
    """
    mean, count = mean_scores(lines, odds)
    evidence: Floats = np.where(count >= _MIN_LETTERS, -mean * count, 0.0)
    return evidence


def _mean(lines: Sequence[str], values: np.ndarray) -> float:
    """Return the mean of values over all trigrams of some lines."""
    means, counts = mean_scores(lines, values)
    return float((means * counts).sum() / max(1, counts.sum()))


def _is_swapped(here: tuple[Path, Path], there: tuple[Path, Path]) -> bool:
    """Return whether two files have their languages in the opposite order."""
    lines = [list(islice(read_lines(path, on_bad="replace"), _SAMPLED)) for path in (*here, *there)]
    models = [Trigrams(side) for side in lines[2:]]
    odds = models[0].log_probs - models[1].log_probs
    src, tgt, train_src, train_tgt = (_mean(side, odds) for side in lines)
    # The training lines are those that the models know: on others the difference is smaller.
    return train_src - train_tgt > _MIN_DIFFERENCE and tgt - src > (train_src - train_tgt) / 2


def _merged(stretches: list[Stretch]) -> list[Stretch]:
    """Join neighbouring stretches of one kind and shift."""
    found: list[Stretch] = []
    for stretch in stretches:
        last = found[-1] if found else None
        if last and (last.kind, last.shift, last.last) == (stretch.kind, stretch.shift, stretch.first - 1):
            found[-1] = replace(last, last=stretch.last)
        else:
            found.append(stretch)
    return found


_TEXTS: dict[StretchKind, tuple[str, Literal["source", "target", "pair"]]] = {
    "shifted": ("pairs are misaligned: their target is some lines away", "pair"),
    "no_target": ("source lines have no target", "source"),
    "unrelated": ("pairs do not belong together, and their targets are nowhere", "pair"),
    "swapped": ("pairs have source and target swapped", "pair"),
    "target_in_source_language": ("target lines in a row are in the language of the source", "target"),
    "source_in_target_language": ("source lines in a row are in the language of the target", "source"),
    "target_in_other_language": ("target lines in a row are in another language", "target"),
    "source_in_other_language": ("source lines in a row are in another language", "source"),
}


def _add_stretches(report: CheckReport) -> None:
    """Add a finding per kind of stretch."""
    found: dict[StretchKind, Finding] = {}
    for stretch in report.stretches:
        text, side = _TEXTS[stretch.kind]
        finding = found.setdefault(stretch.kind, Finding(stretch.kind, text, side))
        finding.add(stretch.first, "", count=stretch.n_lines)
    report.findings[:0] = found.values()
    for finding in found.values():
        if finding.first_line is not None:
            paths = [Path(report.src), Path(report.tgt)]
            lines = [next(islice(read_lines(p, on_bad="replace"), finding.first_line - 1, None), "") for p in paths]
            finding.sample = " | ".join(shorten(line, width=25) for line in lines)
