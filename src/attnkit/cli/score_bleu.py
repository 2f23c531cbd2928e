"""``attnkit score-bleu``: BLEU, chrF and TER of translated lines."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from attnkit.cli import console
from attnkit.cli.options import Json
from attnkit.errors import UsageError
from attnkit.metrics.bleu import BleuTokenizer, MetricName, build_metric, notes_bleu, score_corpus, score_sentences
from attnkit.metrics.significance import paired_bootstrap

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


class Metrics(Enum):
    """What can be asked for: typer takes a repeatable choice as an enumeration only."""

    BLEU = "bleu"
    CHRF = "chrf"
    TER = "ter"


_NAMES: dict[Metrics, MetricName] = {Metrics.BLEU: "bleu", Metrics.CHRF: "chrf", Metrics.TER: "ter"}


def command(
    hyp: Annotated[Path, Argument(help="Translations; - reads standard input.", metavar="HYP")],
    refs: Annotated[
        list[Path], Argument(help="References; several files are several references per line.", metavar="REF")
    ],
    metric: Annotated[
        list[Metrics] | None, Option("--metric", "-m", help="Metric; repeatable. [default: bleu]")
    ] = None,
    tokenize: Annotated[BleuTokenizer | None, Option(help="Tokenizer of BLEU. [default: 13a]")] = None,
    lowercase: Annotated[bool, Option("--lowercase", help="Ignore case in BLEU and chrF (TER always does).")] = False,
    sentence: Annotated[bool, Option("--sentence", help="One score per line instead of the corpus score.")] = False,
    against: Annotated[
        Path | None, Option(help="Baseline to compare HYP with, by paired bootstrap.", metavar="HYP2")
    ] = None,
    samples: Annotated[int | None, Option(min=1, max=100_000, help="Bootstrap samples. [default: 1000]")] = None,
    seed: Annotated[
        int | None, Option(min=0, max=2**32 - 1, help="Random seed of the bootstrap. [default: 12345]")
    ] = None,
    formula: Annotated[
        Literal["sacrebleu", "notes"],
        Option(help="BLEU formula: sacreBLEU's, or the lecture notes' (mean over lines)."),
    ] = "sacrebleu",
    max_order: Annotated[
        int | None, Option(min=1, max=100, help="Maximum n-gram order of --formula notes. [default: 4]")
    ] = None,
    json: Json = False,
) -> None:
    """Score translated lines against reference lines, with the signature that makes a score comparable.

    \b
    Examples:
      attnkit score-bleu out.de test.de
      attnkit score-bleu out.de test.de -m bleu -m chrf -m ter --json
      attnkit score-bleu new.de test.de --against old.de
      attnkit score-bleu out.de test.de --formula notes --max-order 2
    """
    from attnkit.text.parallel import read_together

    names = [_NAMES[one] for one in metric or [Metrics.BLEU]]
    others = len(refs) > 1 or against or metric or lowercase or tokenize
    for refused, what in (
        (sentence and against, "--sentence and --against exclude each other"),
        (formula == "notes" and others, "--formula notes takes one REF and no -m, --against, --tokenize, --lowercase"),
        (formula != "notes" and max_order, "--max-order belongs to --formula notes"),
        (not against and (samples or seed is not None), "--samples and --seed belong to --against"),
        (tokenize and "bleu" not in names, "--tokenize belongs to BLEU"),
        (lowercase and set(names) == {"ter"}, "--lowercase changes nothing: TER always ignores case"),
    ):
        if refused:
            raise UsageError(what, help="leave one of them out")
    hyps, *versions = read_together([hyp, *refs, *([against] if against else [])])
    if formula == "notes":
        report = _by_notes(hyps, versions[0], max_order or 4, sentence=sentence)
    else:
        chosen = [
            build_metric(name, tokenize=tokenize or "13a", lowercase=lowercase, by_sentence=sentence) for name in names
        ]
        if against:
            report = _compare(
                chosen, versions.pop(), hyps, versions, n_samples=samples or 1000, seed=12345 if seed is None else seed
            )
        else:
            report = _by_sentence(chosen, hyps, versions) if sentence else _by_corpus(chosen, hyps, versions)
    console.result(json_format.dumps(report.data, ensure_ascii=False) if json else "\n".join(report.lines))


@dataclass(frozen=True)
class _Report:
    """The same findings as lines for people and as data for ``--json``."""

    lines: list[str]
    data: object


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
        # sacreBLEU gives two equal systems its lowest p: no difference was due to chance, for there is none.
        verdict = "no difference" if one.system == one.baseline else f"p = {one.p_value:.4f}"
        ours = f"  HYP       {one.system:6.2f} ± {one.system_interval:.2f}  ({verdict})"
        lines += [one.signature, f"  baseline  {one.baseline:6.2f} ± {one.baseline_interval:.2f}", ours]
    return _Report(lines, [one.as_json() for one in found])
