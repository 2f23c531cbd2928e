"""``attnkit score-bleu``: BLEU, chrF and TER of translated lines."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attnkit import console
from attnkit.errors import DataError, UsageError
from attnkit.metrics.bleu import BleuTokenizer, MetricName, build_metric, score_corpus, score_sentences
from attnkit.metrics.notes_bleu import notes_bleu
from attnkit.metrics.significance import paired_bootstrap
from attnkit.text.lines import STDIN, read_lines

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


class Metrics(Enum):
    """What can be asked for: typer takes a repeatable choice as an enumeration only."""

    BLEU = "bleu"
    CHRF = "chrf"
    TER = "ter"


_NAMES: dict[Metrics, MetricName] = {Metrics.BLEU: "bleu", Metrics.CHRF: "chrf", Metrics.TER: "ter"}


def command(
    hyp: Annotated[Path, typer.Argument(help="Translated lines; - is standard input.", metavar="HYP")],
    refs: Annotated[list[Path], typer.Argument(help="Reference lines; several are several references.", metavar="REF")],
    metric: Annotated[list[Metrics] | None, typer.Option("--metric", "-m", help="Repeatable.  [default: bleu]")] = None,
    tokenize: Annotated[BleuTokenizer, typer.Option(help="BLEU's own splitting into words.")] = "13a",
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Ignore case in BLEU and chrF (TER always does).")
    ] = False,
    sentence: Annotated[bool, typer.Option("--sentence", help="One score a line instead of the corpus.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="Compare HYP with this baseline by paired bootstrap.", metavar="HYP2")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Resamples of the bootstrap.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Of the bootstrap.")] = 12345,
    formula: Annotated[
        Literal["sacrebleu", "notes"], typer.Option(help="notes: the lecture notes' BLEU, mean of lines.")
    ] = "sacrebleu",
    max_order: Annotated[int, typer.Option(min=1, help="Longest n-gram of --formula notes.")] = 4,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score translated lines against reference lines, with the signature that makes a score comparable.

    \b
    Examples:
      attnkit score-bleu out.de test.de
      attnkit score-bleu out.de test.de -m bleu -m chrf -m ter --json
      attnkit score-bleu new.de test.de --against old.de
      attnkit score-bleu out.de test.de --formula notes --max-order 2
    """
    if sentence and against:
        raise UsageError("--sentence and --against exclude each other", help="leave one of them out")
    if formula == "notes" and (len(refs) > 1 or against or metric or lowercase or tokenize != "13a"):
        raise UsageError("--formula notes takes one reference and no --metric, --against, --tokenize, --lowercase")
    if formula != "notes" and max_order != 4:
        raise UsageError("--max-order belongs to --formula notes")
    hyps, *versions = _read([hyp, *refs, *([against] if against else [])])
    if formula == "notes":
        report = _by_notes(hyps, versions[0], max_order, sentence=sentence)
    else:
        chosen = [
            build_metric(_NAMES[one], tokenize=tokenize, lowercase=lowercase, by_sentence=sentence)
            for one in metric or [Metrics.BLEU]
        ]
        if against:
            report = _compare(chosen, versions.pop(), hyps, versions, n_samples=samples, seed=seed)
        else:
            report = _by_sentence(chosen, hyps, versions) if sentence else _by_corpus(chosen, hyps, versions)
    console.result(json_format.dumps(report.data, ensure_ascii=False) if json else "\n".join(report.lines))


@dataclass(frozen=True)
class _Report:
    """The same findings as lines for people and as data for ``--json``."""

    lines: list[str]
    data: object


def _read(paths: Sequence[Path]) -> list[list[str]]:
    """Read files whose lines belong together. The first one's count is what the others must have."""
    if sum(path == STDIN for path in paths) > 1:
        raise UsageError("standard input can be only one of the files")
    texts = [list(read_lines(path)) for path in paths]
    if not texts[0]:
        raise DataError("there is nothing to score: the file is empty", where=str(paths[0]))
    for path, text in zip(paths[1:], texts[1:], strict=True):
        if len(text) != len(texts[0]):
            raise DataError(
                f"{paths[0]} has {len(texts[0]):,} lines and {path} has {len(text):,}",
                help="line n of one must be the translation of line n of the other",
            )
    return texts


def _by_corpus(metrics: Sequence[Metric], hyps: Sequence[str], refs: Sequence[Sequence[str]]) -> _Report:
    scores = [score_corpus(metric, hyps, refs) for metric in metrics]
    return _Report([score.text for score in scores], [score.as_json() for score in scores])


def _by_sentence(metrics: Sequence[Metric], hyps: Sequence[str], refs: Sequence[Sequence[str]]) -> _Report:
    columns = [score_sentences(metric, hyps, refs) for metric in metrics]
    names = [type(metric).__name__.lower() for metric in metrics]
    rows = list(zip(*columns, strict=True))
    return _Report(
        ["\t".join(f"{score:.2f}" for score in row) for row in rows],
        [dict(zip(names, row, strict=True)) for row in rows],
    )


def _by_notes(hyps: Sequence[str], labels: Sequence[str], max_order: int, *, sentence: bool) -> _Report:
    """Score each line by the notes' formula, words split at spaces; for a corpus give their mean, from 0 to 1."""
    scores = [notes_bleu(hyp.split(), label.split(), max_order) for hyp, label in zip(hyps, labels, strict=True)]
    if sentence:
        return _Report([f"{score:.4f}" for score in scores], [{"notes_bleu": score} for score in scores])
    mean = sum(scores) / len(scores)
    line = f"notes BLEU (orders 1-{max_order}, mean of {len(scores):,} lines) = {mean:.4f}"
    return _Report([line], [{"name": "notes BLEU", "score": mean, "max_order": max_order, "n_lines": len(scores)}])


def _compare(
    metrics: Sequence[Metric],
    baseline: Sequence[str],
    hyps: Sequence[str],
    refs: Sequence[Sequence[str]],
    *,
    n_samples: int,
    seed: int,
) -> _Report:
    found = [paired_bootstrap(metric, baseline, hyps, refs, n_samples=n_samples, seed=seed) for metric in metrics]
    lines = []
    for one in found:
        ours = f"  HYP       {one.system:6.2f} ± {one.system_interval:.2f}  (p = {one.p_value:.4f})"
        lines += [one.signature, f"  baseline  {one.baseline:6.2f} ± {one.baseline_interval:.2f}", ours]
    return _Report(lines, [one.as_json() for one in found])
