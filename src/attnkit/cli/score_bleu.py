"""``attnkit score-bleu``: BLEU, chrF and TER of translations."""

from dataclasses import asdict
from enum import Enum
from json import dumps
from pathlib import Path
from typing import Annotated, Literal, get_args

from typer import Argument, Option

from attnkit.cli.options import Json
from attnkit.errors import DataError, UsageError
from attnkit.metrics import bleu
from attnkit.metrics.bleu import PAIRED_TESTS, BleuTokenizer, MetricName, PairedTestName
from attnkit.progress import console
from attnkit.text.files import STDIN
from attnkit.text.lines import read_lines

# Typer supports repeatable choices only as enumerations.
Metrics = Enum("Metrics", [(name, name) for name in get_args(MetricName)])  # type: ignore[misc]


def command(
    hyp: Annotated[Path, Argument(help="Translations; - reads standard input.", metavar="HYP")],
    refs: Annotated[list[Path], Argument(help="Reference file; repeat for multiple references.", metavar="REF")],
    metric: Annotated[
        list[Metrics] | None, Option("--metric", "-m", help="Metric; repeatable. [default: bleu]")
    ] = None,
    tokenize: Annotated[
        BleuTokenizer | None,
        Option(
            help="Tokenizer of BLEU: 13a, intl, zh, char, none, ja-mecab, ko-mecab, flores101, flores200, spBLEU-1K. "
            "[default: 13a]",
            metavar="NAME",
        ),
    ] = None,
    chrf_word_order: Annotated[
        int | None,
        Option(min=0, max=bleu.MAX_WORD_ORDER, help="Maximum word n-gram order of chrF; 2: chrF++. [default: 0]"),
    ] = None,
    lowercase: Annotated[bool, Option(help="Ignore case in BLEU and chrF (TER always does).")] = False,
    sentence: Annotated[bool, Option(help="Print sentence-level scores instead of the corpus score.")] = False,
    against: Annotated[
        Path | None, Option(help="Baseline translations to compare HYP with, by the paired test.", metavar="HYP2")
    ] = None,
    test: Annotated[
        PairedTestName | None,
        Option(help="Paired test: bootstrap resampling or approximate randomization. [default: bootstrap]"),
    ] = None,
    samples: Annotated[
        int | None, Option(min=1, max=100_000, help="Samples of the test; 10,000 of randomization. [default: 1000]")
    ] = None,
    seed: Annotated[int | None, Option(min=1, max=2**32 - 1, help="Seed of the test. [default: 12345]")] = None,
    formula: Annotated[
        Literal["sacrebleu", "notes"],
        Option(help="BLEU formula: sacreBLEU's, or the lecture notes' (mean over lines)."),
    ] = "sacrebleu",
    max_order: Annotated[
        int | None, Option(min=1, max=100, help="Maximum n-gram order of --formula notes. [default: 4]")
    ] = None,
    json: Json = False,
) -> None:
    """Score translations with BLEU, chrF and TER; print the sacreBLEU signature.

    \b
    Examples:
      attnkit score-bleu out.de test.de
      attnkit score-bleu out.de test.de -m bleu -m chrf -m ter --json
      attnkit score-bleu out.de test.de -m chrf --chrf-word-order 2
      attnkit score-bleu new.de test.de --against old.de
      attnkit score-bleu new.de test.de --against old.de \\
        --test randomization
      attnkit score-bleu out.de test.de --formula notes --max-order 2
    """
    names: list[MetricName] = [one.value for one in metric or ()] or ["bleu"]
    others = len(refs) > 1 or against or metric or lowercase or tokenize
    for refused, what in (
        (sentence and against, "--sentence and --against cannot be combined"),
        (formula == "notes" and others, "--formula notes takes one REF and no -m, --against, --tokenize, --lowercase"),
        (formula != "notes" and max_order, "--max-order requires --formula notes"),
        (not against and (samples or seed or test), "--test, --samples and --seed require --against"),
        (chrf_word_order is not None and "chrf" not in names, "--chrf-word-order requires the metric chrf"),
        (tokenize and "bleu" not in names, "--tokenize requires the metric bleu"),
        (lowercase and set(names) == {"ter"}, "--lowercase has no effect on TER, which always ignores case"),
    ):
        if refused:
            raise UsageError(what, help="leave one of them out")
    paths = [hyp, *refs, *([against] if against else [])]
    if paths.count(STDIN) > 1:
        raise UsageError("standard input can be only one of the files")
    hyps, *versions = texts = [list(read_lines(path)) for path in paths]
    if not hyps:
        raise DataError("no lines: the file is empty", where=str(hyp))
    for path, text in zip(paths, texts, strict=True):
        if len(text) != len(hyps):
            help = "line n of one must be the translation of line n of the other"
            raise DataError(f"{hyp} has {len(hyps):,} lines and {path} has {len(text):,}", help=help)
    lines: list[str]
    data: object
    if formula == "notes":
        # The notes score each line, split at spaces, from 0 to 1; the corpus score is the mean over lines.
        n, order = len(hyps), max_order or 4
        scores = [bleu.notes_bleu(one.split(), ref.split(), order) for one, ref in zip(hyps, versions[0], strict=True)]
        if sentence:
            lines, data = [f"{score:.4f}" for score in scores], [{"notes_bleu": score} for score in scores]
        else:
            mean = sum(scores) / n
            lines = [f"notes BLEU (orders 1-{order}, mean of {n:,} lines) = {mean:.4f}"]
            data = [{"name": "notes BLEU", "score": mean, "max_order": order, "n_lines": n}]
        console.result(dumps(data, ensure_ascii=False) if json else "\n".join(lines))
        return
    splits: BleuTokenizer = tokenize or "13a"
    words = chrf_word_order or 0
    chosen = [
        bleu.build_metric(one, tokenize=splits, lowercase=lowercase, by_sentence=sentence, chrf_word_order=words)
        for one in names
    ]
    if against:
        baseline, compare = versions.pop(), PAIRED_TESTS[test or "bootstrap"]
        options = {name: value for name, value in (("n_samples", samples), ("seed", seed)) if value}
        found = [compare(one, baseline, hyps, versions, **options) for one in chosen]
        lines, data = [], [asdict(one) for one in found]
        for one in found:
            verdict = "no difference" if one.system == one.baseline else f"p = {one.p_value:.4f}"
            ours = f"  HYP       {one.system:6.2f} ± {one.system_interval:.2f}  ({verdict})"
            lines += [one.signature, f"  baseline  {one.baseline:6.2f} ± {one.baseline_interval:.2f}", ours]
    elif sentence:
        rows = list(zip(*(bleu.score_sentences(one, hyps, versions) for one in chosen), strict=True))
        lines = ["\t".join(f"{score:.2f}" for score in row) for row in rows]
        data = [dict(zip((type(one).__name__.lower() for one in chosen), row, strict=True)) for row in rows]
    else:
        corpus = [bleu.score_corpus(one, hyps, versions) for one in chosen]
        lines, data = [score.text for score in corpus], [score.to_dict() for score in corpus]
    console.result(dumps(data, ensure_ascii=False) if json else "\n".join(lines))
