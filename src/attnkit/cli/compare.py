"""``attnkit compare``: translators on the same test files."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from attnkit.cli.options import Json, Quiet, TargetLanguage, Threads

if TYPE_CHECKING:
    from attnkit.analysis.compare_translators import TestComparison


def command(
    runs: Annotated[list[Path], Argument(help="Runs; each is compared with the first.", metavar="RUN")],
    src: Annotated[list[Path] | None, Option(help="Test source; repeatable.", metavar="FILE")] = None,
    tgt: Annotated[list[Path] | None, Option(help="Test target; once per --src.", metavar="FILE")] = None,
    groups: Annotated[bool, Option(help="Scores by length, numbers, names, rare words and overlap.")] = False,
    lines: Annotated[int, Option(min=0, max=10_000, help="Show this many lines that differ most.")] = 0,
    tgt_lang: TargetLanguage = None,
    threads: Threads = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score translators on test files, with the paired test; report overlap.

    Each RUN is compared with the first one, which is "before", e.g. before adaptation. Give a file of the new kind of
    text and one of general text: adapting may gain on the first and lose on the second. Lines of a test file that
    nearly occur in the training text of a run are counted first, as they raise its score.
    --groups shows where the runs differ: every line is in one group of each property.
    p is of paired bootstrap resampling (Koehn 2004); below 0.05 the difference is usually called significant.

    \b
    Examples:
      attnkit compare run1 run2 --src test.en --tgt test.de
      attnkit compare run1 run2 run --src test.en --tgt test.de
      attnkit compare run1 run2 --src test.en --tgt test.de \\
        --groups --lines 10
      attnkit compare run1 run2 --src test.en --tgt test.de \\
        --src b.en --tgt b.de --json
    """
    from attnkit.analysis.compare_translators import check_runs, check_tests, compare_translators
    from attnkit.progress import console

    tests = check_tests(src or [], tgt or [])
    check_runs(runs)
    with console.StatusLine(plain_every=60.0) as status:
        found = []
        compared = compare_translators(
            runs, tests, groups=groups, n_lines=lines, tgt_lang=tgt_lang, threads=threads, tell=status.update
        )
        for comparison in compared:
            found.append(comparison)
            if not json:
                status.clear()
                title = f"{comparison.baseline} and {comparison.system}\n" if len(runs) > 2 else ""
                console.result(title + as_text(comparison))
    if json:
        console.result(dumps([asdict(comparison) for comparison in found], ensure_ascii=False))


def as_text(comparison: TestComparison) -> str:
    """Format a comparison, in at most 80 columns."""
    n, seen = comparison.n_lines, comparison.seen
    overlap = "overlap with the training text unknown"
    if seen is not None:
        counts = f"{seen.source:,} ({seen.source / n:.1%}) and {seen.target:,} ({seen.target / n:.1%})"
        overlap = f"seen in training, source and target: {counts}"
    lines = [f"{comparison.src}: {n:,} lines", f"  {overlap}"]
    for one in comparison.scores:
        verdict = "no difference" if one.system == one.baseline else f"p = {one.p_value:.4f}"
        before = f"before {one.baseline:6.2f} ± {one.baseline_interval:.2f}"
        after = f"after {one.system:6.2f} ± {one.system_interval:.2f}"
        change = f"{one.system - one.baseline:+.2f}"
        lines.append(f"  {one.name.removesuffix('2'):5} {before}   {after}   {change} ({verdict})")
    return "\n".join([*lines, *group_text(comparison), *changed_text(comparison)])


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
        lines += [f"    {name:>9}  {printable(text)}" for name, text in texts.items()]
    return lines
