"""``attnkit compare``: translators on the same test files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from attnkit.cli.options import Json, Quiet, SourceLanguage, TargetLanguage, Threads
from attnkit.metrics.bleu import PairedTestName

if TYPE_CHECKING:
    from attnkit.analysis.compare_summary import SystemScores
    from attnkit.analysis.compare_translators import TestComparison


def command(
    systems: Annotated[
        list[Path], Argument(help="Runs or files of translations; compared with the first.", metavar="RUN|HYP")
    ],
    src: Annotated[list[Path] | None, Option(help="Test source; repeatable.", metavar="FILE")] = None,
    tgt: Annotated[list[Path] | None, Option(help="Test target; once per --src.", metavar="FILE")] = None,
    test: Annotated[
        PairedTestName, Option(help="Paired test: bootstrap resampling or approximate randomization.")
    ] = "bootstrap",
    groups: Annotated[bool, Option(help="Scores by length, numbers, names, rare words and overlap.")] = False,
    lines: Annotated[int, Option(min=0, max=10_000, help="Show this many lines that differ most.")] = 0,
    seeds: Annotated[bool, Option(help="One row for runs that differ in the seed alone: mean, deviation.")] = False,
    latex: Annotated[bool, Option(help="Print the table of --seeds in LaTeX (booktabs).")] = False,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    threads: Threads = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score translators on test files, with a paired test; report overlap.

    Each RUN is compared with the first one, which is "before", e.g. before adaptation. Give a file of the new kind of
    text and one of general text: adapting may gain on the first and lose on the second. Lines of a test file that
    nearly occur in the training text of a run are counted first, as they raise its score. Files of translations (HYP)
    are compared on one test file; its source is optional.
    --groups shows where the runs differ: every line is in one group of each property.
    p is of paired bootstrap resampling (Koehn 2004) or approximate randomization (Riezler and Maxwell 2005); below 0.05
    the difference is usually called significant. In the table of --seeds, it is the largest of the runs of a row.

    \b
    Examples:
      attnkit compare run1 run2 --src test.en --tgt test.de
      attnkit compare run1 run2 run --src test.en --tgt test.de --seeds
      attnkit compare run1 run2 --src test.en --tgt test.de \\
        --groups --lines 10
      attnkit compare run1 run2 --src test.en --tgt test.de \\
        --src b.en --tgt b.de --json
      attnkit compare old.de new.de --tgt test.de --test randomization
    """
    from attnkit.analysis.compare_summary import latex_table, summarize
    from attnkit.analysis.compare_translators import check_systems, compare_translators
    from attnkit.errors import UsageError
    from attnkit.progress import console
    from attnkit.tasks.translation.directions import LanguagePair

    if latex and json:
        raise UsageError("--latex and --json cannot be combined", help="leave one of them out")
    if (seeds or latex) and (groups or lines):
        what = "--seeds and --latex print one table, without --groups and --lines"
        raise UsageError(what, help="call compare twice")
    tests = check_systems(systems, src or [], tgt or [])
    with console.StatusLine(plain_every=60.0) as status:
        found = []
        compared = compare_translators(
            systems,
            tests,
            test=test,
            groups=groups,
            n_lines=lines,
            languages=LanguagePair(src_lang, tgt_lang),
            threads=threads,
            tell=status.update,
        )
        for comparison in compared:
            found.append(comparison)
            if not (json or seeds or latex):
                status.clear()
                console.result((titled_text if len(systems) > 2 else as_text)(comparison))
    if json:
        rows = summarize(found) if seeds else found
        console.result(dumps([asdict(row) for row in rows], ensure_ascii=False))
    elif latex:
        console.result(latex_table(found))
    elif seeds:
        console.result(console.printable(summary_text(summarize(found))))


def summary_text(rows: Sequence[SystemScores]) -> str:
    """Format the tables of ``--seeds``, one per test file."""
    from itertools import groupby

    from attnkit.progress import console

    parts = []
    for _, group in groupby(rows, key=lambda row: (row.src, row.tgt)):
        own = list(group)
        columns = [text for score in own[0].scores for text in (score.name.removesuffix("2"), "± s.d.", "p")]
        cells = []
        for row in own:
            texts = []
            for score in row.scores:
                spread = "" if score.deviation is None else f"± {score.deviation:.2f}"
                texts += [f"{score.mean:.2f}", spread, "" if score.p_value is None else f"{score.p_value:.4f}"]
            cells.append((row.systems[0], str(len(row.systems)), *texts))
        table = console.table([("first run", "runs", *columns), *cells], indent="  ", right=range(1, 2 + len(columns)))
        parts.append(f"{own[0].src or own[0].tgt}: {own[0].n_lines:,} lines\n{table}")
    return "\n\n".join(parts)


def as_text(comparison: TestComparison) -> str:
    """Format a comparison, in at most 80 columns."""
    n, seen = comparison.n_lines, comparison.seen
    lines = [f"{comparison.src or comparison.tgt}: {n:,} lines"]
    if seen is not None:
        counts = f"{seen.source:,} ({seen.source / n:.1%}) and {seen.target:,} ({seen.target / n:.1%})"
        lines.append(f"  seen in training, source and target: {counts}")
    elif comparison.src is not None:
        lines.append("  overlap with the training text unknown")
    for one in comparison.scores:
        verdict = "no difference" if one.system == one.baseline else f"p = {one.p_value:.4f}"
        before = f"before {one.baseline:6.2f} ± {one.baseline_interval:.2f}"
        after = f"after {one.system:6.2f} ± {one.system_interval:.2f}"
        change = f"{one.system - one.baseline:+.2f}"
        lines.append(f"  {one.name.removesuffix('2'):5} {before}   {after}   {change} ({verdict})")
    return "\n".join([*lines, *group_text(comparison), *changed_text(comparison)])


def titled_text(comparison: TestComparison) -> str:
    """Format the comparison of two of several runs."""
    return f"{comparison.baseline} and {comparison.system}\n{as_text(comparison)}"


def group_text(comparison: TestComparison) -> list[str]:
    """Return the lines about groups, if there are any, in at most 80 columns."""
    lines, last = [], ""
    for one in comparison.groups or []:
        if one.property != last:
            lines += ["", f"  {one.property:42} lines   BLEU before   after  change"]
            last = one.property
        change = one.system_bleu - one.baseline_bleu
        lines.append(
            f"    {one.group:39} {one.n_lines:6,} {one.baseline_bleu:13.2f} {one.system_bleu:7.2f} {change:+7.2f}"
        )
    return lines


def changed_text(comparison: TestComparison) -> list[str]:
    """Return the lines that differ most, if they were asked for."""
    from attnkit.progress.console import printable

    lines = []
    for one in comparison.changed or []:
        change = one.system_chrf - one.baseline_chrf
        lines += ["", f"  line {one.line:,}: chrF {one.baseline_chrf:.1f} -> {one.system_chrf:.1f} ({change:+.1f})"]
        texts = {"source": one.source, "reference": one.reference, "before": one.baseline, "after": one.system}
        lines += [f"    {name:>9}  {printable(text)}" for name, text in texts.items() if text is not None]
    return lines
