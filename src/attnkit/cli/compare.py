"""``attnkit compare``: two translators on the same test files."""

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
    before: Annotated[Path, Argument(help="First run, e.g. before adaptation.", metavar="BEFORE")],
    after: Annotated[Path, Argument(help="Second run, e.g. adapted from the first.", metavar="AFTER")],
    src: Annotated[list[Path] | None, Option(help="Test source; repeatable.", metavar="FILE")] = None,
    tgt: Annotated[list[Path] | None, Option(help="Test target; once per --src.", metavar="FILE")] = None,
    tgt_lang: TargetLanguage = None,
    threads: Threads = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Score two translators on test files, with the paired test; report overlap.

    Give a file of the new kind of text and one of general text: adapting may gain on the first and lose on the second.
    Lines of a test file that nearly occur in the training text of AFTER are counted first, as they raise its score.
    p is of paired bootstrap resampling (Koehn 2004); below 0.05 the difference is usually called significant.

    \b
    Examples:
      attnkit compare run1 run2 --src test.en --tgt test.de
      attnkit compare run1 run2 --src test.en --tgt test.de \\
        --src b.en --tgt b.de --json
    """
    from attnkit.analysis.compare_translators import check_tests, compare_translators
    from attnkit.progress import console

    tests = check_tests(src or [], tgt or [])
    with console.StatusLine(plain_every=60.0) as status:
        found = []
        given = (before, after, tests)
        for comparison in compare_translators(*given, tgt_lang=tgt_lang, threads=threads, tell=status.update):
            found.append(comparison)
            if not json:
                status.clear()
                console.result(as_text(comparison))
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
    return "\n".join(lines)
