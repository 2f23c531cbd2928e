"""Tables of compared translators: means over seeds, as text and LaTeX."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from attnkit.analysis.compare_translators import TestComparison
from attnkit.analysis.run_table import group_by_seed, list_runs

_ESCAPES = {character: f"\\{character}" for character in "&%$#_{}"}
_ESCAPES |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}


@dataclass(frozen=True)
class MeanScore:
    """Corpus score of one run, or the mean over the seeds of several."""

    name: str  #: of the metric
    mean: float
    deviation: float | None  #: standard deviation of a single run (n - 1); None for one run
    p_value: float | None  #: of the paired test with the first system, of several runs the largest; None for the first


@dataclass(frozen=True)
class SystemScores:
    """Scores of a system on a test file."""

    systems: list[str]  #: runs that differ in the seed alone, or one run or file of translations
    src: str | None  #: source file; None if only translations are compared
    tgt: str  #: target file
    n_lines: int
    scores: list[MeanScore]  #: BLEU and chrF


def summarize(comparisons: Sequence[TestComparison]) -> list[SystemScores]:
    """Return one row per system and test file.

    Finished runs that differ in the seed alone are one system.
    """
    found = []
    for _, tests in groupby(comparisons, key=lambda one: (one.src, one.tgt)):
        others = list(tests)
        first = others[0]
        scores = {one.system: one.scores for one in reversed(others)}
        for names in group_systems([first.baseline, *(one.system for one in others)]):
            means = []
            for k, metric in enumerate(first.scores):
                own = [metric.baseline if name == first.baseline else scores[name][k].system for name in names]
                tested = [] if first.baseline in names else [scores[name][k].p_value for name in names]
                deviation = statistics.stdev(own) if len(own) > 1 else None
                means.append(MeanScore(metric.name, statistics.mean(own), deviation, max(tested, default=None)))
            found.append(SystemScores(names, first.src, first.tgt, first.n_lines, means))
    return found


def group_systems(systems: Sequence[str]) -> list[list[str]]:
    """Return the systems; finished runs that differ in the seed alone are one group."""
    names = list(dict.fromkeys(systems))
    runs = [Path(name) for name in names if Path(name).is_dir()]
    groups = [[str(path) for path in group.paths] for group in group_by_seed(list_runs(runs))] if runs else []
    found = {name: group for group in groups for name in group}
    # In the order in which the first system of each was given.
    return list({id(group): group for group in (found.get(name) or [name] for name in names)}.values())


def latex_table(comparisons: Sequence[TestComparison]) -> str:
    """Return the table of ``summarize`` in LaTeX; it needs the package booktabs."""
    names = [one.name for one in comparisons[0].scores]
    n_columns = 2 + 2 * len(names)
    lines = [f"% {escape_latex(one.signature)}" for one in comparisons[0].scores]
    lines += [
        r"% \pm: standard deviation of a single run, over seeds",
        "% p: paired test with the first system; of several runs, the largest",
        rf"\begin{{tabular}}{{l{'r' * (n_columns - 1)}}}",
        r"\toprule",
        rf"system & runs & {' & '.join(f'{escape_latex(name)} & $p$' for name in names)} \\",
    ]
    for (src, tgt), rows in groupby(summarize(comparisons), key=lambda row: (row.src, row.tgt)):
        for k, row in enumerate(rows):
            if not k:
                title = f"{escape_latex(Path(src or tgt).name)}, {row.n_lines} lines"
                lines += [r"\midrule", rf"\multicolumn{{{n_columns}}}{{l}}{{\emph{{{title}}}}} \\"]
            cells = [escape_latex(row.systems[0]), str(len(row.systems))]
            for score in row.scores:
                spread = "" if score.deviation is None else rf" $\pm$ {score.deviation:.2f}"
                cells += [f"{score.mean:.2f}{spread}", "--" if score.p_value is None else f"{score.p_value:.4f}"]
            lines.append(rf"{' & '.join(cells)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def escape_latex(text: str) -> str:
    r"""Return plain text as LaTeX; unprintable characters become a question mark.

    >>> print(escape_latex("run_1 & 50%"))
    run\_1 \& 50\%
    """
    return "".join(_ESCAPES.get(one, one if one.isprintable() else "?") for one in text)
