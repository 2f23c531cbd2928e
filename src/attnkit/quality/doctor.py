"""The whole check of two files: findings, alignment, languages, and one verdict."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

from attnkit.io import atomic
from attnkit.quality.check import check_pair
from attnkit.quality.findings import FEW, SIDES, CheckReport, Finding, OthersName, Stretch, StretchKind, shorten
from attnkit.quality.judgement import MIN_DIFFERENCE, Span, judge_span, kinds_of, read_spans
from attnkit.quality.language_names import find_language, is_other, name_of
from attnkit.quality.languages import Trigrams, mean_score
from attnkit.quality.verdict import COPIED_SHARE, give_verdict
from attnkit.runtime.signals import begin_worker, python_command, usable_cpus
from attnkit.text.config import CheckConfig
from attnkit.text.lines import count_lines, read_lines
from attnkit.text.sources import source_size
from attnkit.text.tokenizer import Tokenizer

_APART = 16 << 20  # bytes of files that are judged in another process
_SAMPLED = 5000  # lines of the training files that the sides are compared with


@dataclass(frozen=True)
class Expected:
    """What the caller knows of the files of a check."""

    is_training: bool = False  #: whether the files are about to be trained on, so that they can be too few
    others: OthersName = "training"  #: what the other corpus is
    languages: tuple[str | None, str | None] = (None, None)  #: codes of both sides, such as "de"


def examine_pair(
    src_path: Path,
    tgt_path: Path,
    config: CheckConfig | None = None,
    *,
    others: tuple[Path, Path | None] | None = None,
    vocabularies: tuple[Tokenizer, Tokenizer] | None = None,
    expected: Expected | None = None,
) -> CheckReport:
    """Check two files, judge their alignment and languages, and give a verdict.

    Other arguments and errors are those of ``check_pair``.
    """
    expected = expected or Expected()
    with _judge_files(src_path, tgt_path) as judge:  # in another process, if the files are large
        report = check_pair(
            src_path, tgt_path, config, others=others, others_name=expected.others, vocabularies=vocabularies
        )
        judged = judge()
    report.stretches, report.separation = judged.stretches, judged.separation
    report.findings += judged.findings
    report.stretches = _merged(report.stretches)
    shifted = next((stretch for stretch in report.stretches if stretch.kind == "shifted"), None)
    for finding in report.findings:
        if finding.name == "mismatch" and shifted is not None:  # known better than by the guess of ``check_pair``
            finding.first_line, finding.sample = shifted.first, None
    if expected.is_training and 0 < report.n_usable < FEW:
        # Elsewhere the files may be a test set, which is as large as it should be.
        text = "usable [pair is|pairs are] few to learn from"
        report.findings.append(Finding("few", text, "pair", count=report.n_usable))
    if others is not None and others[1] is not None and _is_swapped((src_path, tgt_path), (others[0], others[1])):
        text = f"[line|lines]: source and target are swapped, compared with the {expected.others} files"
        report.findings.append(Finding("swapped_sides", text, "pair", count=report.n_src))
    _add_languages(report, expected)
    copied = sum(finding.count for finding in report.findings if finding.name == "copied")
    if copied >= COPIED_SHARE * report.n_src > 0:  # what is learnt from copies says nothing of the other pairs
        report.stretches = []
    _add_stretches(report)
    is_corpus = others is None or expected.others == "validation"
    give_verdict(report, is_corpus, count_lines(others[0]) if others is not None and is_corpus else None)
    if others is not None and any(finding.name.endswith("_overlap") for finding in report.findings):
        _add_overlap_remedy(report, others, expected.others)
    return report


def _add_overlap_remedy(report: CheckReport, others: tuple[Path, Path | None], name: OthersName) -> None:
    """Set the command that removes the shared lines from the training text."""
    there = [str(path) for path in others if path is not None]
    tests = there if name == "validation" else [report.src, report.tgt]
    command = report.remedy
    if name == "training" and len(there) == 2 and not command:
        command = ("clean", *there, "-o", "cleaned")
    elif name == "training" or command[:1] not in ((), ("clean",)):
        return
    command = command or ("clean", report.src, report.tgt, "-o", "cleaned")
    report.remedy = (*command, *(part for test in tests for part in ("--test", test)))


@contextmanager
def _judge_files(src_path: Path, tgt_path: Path) -> Iterator[Callable[[], CheckReport]]:
    """Yield a function that returns what the spans of two files show.

    Large files are judged in a process of their own, while the caller does the rest of the check.
    """
    here = partial(judge_files, src_path, tgt_path)
    size = 0
    with suppress(OSError):  # the reader reports it
        size = min(source_size(path) for path in (src_path, tgt_path))
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
    begin_worker(int(sys.argv[1]))
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


def _add_languages(report: CheckReport, expected: Expected) -> None:
    """Record the languages of both sides, and name them in the findings."""
    sides = [list(islice(read_lines(Path(path), on_bad="replace"), _SAMPLED)) for path in (report.src, report.tgt)]
    seen = [find_language(lines) for lines in sides]
    given = expected.languages
    report.src_language, report.tgt_language = (
        b if a is None or is_other(a, b) else a for a, b in zip(given, seen, strict=True)
    )
    wrong = [language is not None and is_other(language, one) for language, one in zip(given, seen, strict=True)]
    if all(wrong) and all(not is_other(given[1 - side] or "", seen[side]) for side in (0, 1)):
        text = f"[line|lines]: the source seems to be {name_of(seen[0] or '')}, the target {name_of(seen[1] or '')}"
        if not any(finding.name == "swapped_sides" for finding in report.findings):
            report.findings.append(Finding("swapped_sides", text, "pair", count=report.n_src))
        wrong = [False, False]
    for side, is_wrong, language, one in zip(SIDES, wrong, given, seen, strict=True):
        if is_wrong:
            text = f"[line|lines] seem to be {name_of(one or '')}, not {name_of(language or '')}"
            count = report.n_src if side == "source" else report.n_tgt
            report.findings.append(Finding("wrong_language", text, side, count=count))
    for side, code in zip(SIDES, (report.src_language, report.tgt_language), strict=True):
        if code is not None:
            for finding in report.findings:
                where = f"the language of the {side}"
                finding.text = finding.text.replace(where, f"{where} ({name_of(code)})")


def _is_swapped(here: tuple[Path, Path], there: tuple[Path, Path]) -> bool:
    """Return whether two files have their languages in the opposite order."""
    lines = [list(islice(read_lines(path, on_bad="replace"), _SAMPLED)) for path in (*here, *there)]
    models = [Trigrams(side) for side in lines[2:]]
    odds = models[0].log_probs - models[1].log_probs
    src, tgt, train_src, train_tgt = (mean_score(side, odds) for side in lines)
    # The training lines are those that the models know: on others the difference is smaller.
    return train_src - train_tgt > MIN_DIFFERENCE and tgt - src > (train_src - train_tgt) / 2


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
    "shifted": ("[pair is misaligned: its|pairs are misaligned: their] target is some lines away", "pair"),
    "no_target": ("source [line has|lines have] no target", "source"),
    "unrelated": ("pairs do not belong together, and their targets are not nearby", "pair"),
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
