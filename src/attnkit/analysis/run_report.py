"""Reports on runs: table, curves, settings, samples, tests, attention."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from attnkit.analysis.compare_translators import Files, TestComparison, check_runs, compare_translators
from attnkit.analysis.run_history import RunHistory, read_history
from attnkit.analysis.run_table import RunRow, list_runs
from attnkit.checkpoints.run_folder import is_run
from attnkit.errors import RunError, UsageError
from attnkit.plotting.attention_maps import MapSlice
from attnkit.plotting.curves import Curve, GrowingCurve
from attnkit.plotting.progress_text import score_name
from attnkit.tasks.translation.directions import USUAL, LanguagePair, check_languages_used, languages_of_each

MOST_RUNS = 12
_MAX_CARD = 1 << 20  # bytes of a model card that is read
_FACT = re.compile(r"^\| (parameters|attnkit|Python|finished|machine|device) \| (.{1,200}) \|$", re.MULTILINE)


@dataclass(frozen=True)
class Chart:
    """Curves on common axes, one for each run."""

    title: str
    x_label: str
    curves: list[Curve]  #: empty for a run that lacks the values


@dataclass(frozen=True)
class LineMap:
    """Weights of one kind of attention, the mean over the heads of the last layer."""

    title: str
    axes: str  #: what rows and columns are
    queries: list[str]
    keys: list[str]
    weights: list[list[float]]  #: (queries, keys)


@dataclass(frozen=True)
class SeenLine:
    """What a run made of a line, and where it looked."""

    run: str
    text: str
    maps: list[LineMap]


@dataclass(frozen=True)
class AttendedLine:
    """A line, and what each run made of it."""

    source: str
    seen: list[SeenLine]


@dataclass(frozen=True)
class ReportedRun:
    """A run of a report."""

    name: str  #: path as given
    row: RunRow
    history: RunHistory
    facts: Mapping[str, str]  #: of the model card: parameters, version, machine, device; empty if there is none


@dataclass(frozen=True)
class RunReport:
    """A report on runs, in the order in which they were given."""

    runs: list[ReportedRun]
    tests: list[TestComparison]  #: of each other run with the first, for each test file
    attention: list[AttendedLine]


@dataclass(frozen=True)
class ReportRequest:
    """What a report has besides what the runs recorded."""

    tests: Sequence[Files] = ()  #: source and target files
    lines: Sequence[str] = ()  #: source lines whose attention is shown
    languages: LanguagePair = USUAL  #: of translators with several
    threads: int | None = None


def build_report(
    paths: Sequence[Path], request: ReportRequest, tell: Callable[[str], None] = lambda text: None
) -> RunReport:
    """Read what runs recorded; translate test files and lines, if there are any.

    Raises:
        UsageError: no run, a run twice, or more than ``MOST_RUNS``; tests for a single run; a language that no run has,
            or that nothing uses.
        RunError: a folder is not a run, has no records, or has no attention weights that were asked for.
        DataError: a test file cannot be used.
    """
    if not 0 < len(paths) <= MOST_RUNS:
        help = "attnkit runs lists any number of runs"
        raise UsageError(f"a report is on 1 to {MOST_RUNS} runs, not {len(paths)}", help=help)
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("a run is named twice", help="name each run once")
    for path in paths:
        if path.is_dir() and not is_run(path):
            raise RunError("not a run folder", where=str(path), help="attnkit runs lists the runs below a folder")
    if request.tests:
        check_runs(paths)
    elif not request.lines:
        check_languages_used(request.languages, "--src or --text")
    rows = {row.path: row for row in list_runs(paths)}
    runs = [ReportedRun(str(path), rows[path], read_history(path), card_facts(path)) for path in paths]
    tests = []
    if request.tests:
        options: dict[str, Any] = {"languages": request.languages, "threads": request.threads, "tell": tell}
        tests = list(compare_translators(paths, request.tests, groups=True, n_lines=10, **options))
    return RunReport(runs, tests, _attention(paths, request, tell))


def card_facts(path: Path) -> dict[str, str]:
    """Return size, versions and machine from a run's card; empty without one."""
    card = path / "README.md"
    try:
        if card.is_symlink() or not card.is_file() or card.stat().st_size > _MAX_CARD:
            return {}
        return dict(_FACT.findall(card.read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return {}


def _attention(paths: Sequence[Path], request: ReportRequest, tell: Callable[[str], None]) -> list[AttendedLine]:
    """Return what each run makes of each line."""
    found = [AttendedLine(line, []) for line in request.lines]
    if not request.lines:
        return found
    from attnkit.analysis.attention import extract_attention
    from attnkit.analysis.attention_request import AttentionQuery, MapSelection, pick
    from attnkit.tasks.translation.loading import open_run

    of_each = [request.languages]
    if any(request.languages) and len(paths) > 1:
        of_each = languages_of_each([open_run(path) for path in paths], request.languages)
    for path, languages in zip(paths, cycle(of_each), strict=False):
        tell(f"attention of {path}")
        answer = extract_attention(AttentionQuery(path, list(request.lines), languages=languages))
        for line, example in zip(found, answer.sentences, strict=True):
            line.seen.append(SeenLine(str(path), example.target, list(map(_plain, pick(example, MapSelection())))))
    return found


def _plain(one: MapSlice) -> LineMap:
    return LineMap(one.title, one.axes, list(one.queries), list(one.keys), one.weights.tolist())


# --- charts


def charts(report: RunReport) -> list[Chart]:
    """Return the charts of a report, each with a curve for each run."""
    runs = report.runs
    names = dict.fromkeys(name for run in runs for name in run.history.scores)
    found = [_chart("training loss", "step", {run.name: _losses(run.history) for run in runs})]
    for name in names:
        by_step = {run.name: run.history.scores.get(name, []) for run in runs}
        found.append(_chart(f"development {_named(name)}", "step", by_step))
    metric = next((run.row.metric for run in runs if run.row.metric in names), None)
    if metric is not None:
        by_minute = {run.name: _by_minutes(run.history, metric) for run in runs}
        found.append(_chart(f"development {_named(metric)} by time", "minutes of training", by_minute))
    rates = {run.name: list(zip(run.history.steps, run.history.learning_rates, strict=True)) for run in runs}
    found.append(_chart("learning rate", "step", rates))
    found.append(_chart("tokens per second", "step", {run.name: run.history.speeds for run in runs}))
    return [chart for chart in found if any(curve.x for curve in chart.curves)]


def _named(score: str) -> str:
    return score if score == "perplexity" else score_name(score)  # which shortens it


Points = Sequence[tuple[float, float]]


def _chart(title: str, x_label: str, points: Mapping[str, Points]) -> Chart:
    """Return a chart; a run without points keeps its colour, with an empty curve."""
    curves = []
    for name, pairs in points.items():
        curve = GrowingCurve()
        for x, y in pairs:
            curve.add(x, y)
        curves.append(Curve(name, "", curve.x, curve.y))
    return Chart(title, x_label, curves)


def _losses(history: RunHistory) -> Points:
    return list(zip(history.steps, history.losses, strict=True))


def _by_minutes(history: RunHistory, metric: str) -> Points:
    minutes = dict(history.minutes)
    return [(minutes[step], value) for step, value in history.scores.get(metric, []) if step in minutes]


# --- samples


def samples_by_text(history: RunHistory) -> list[tuple[str, str, list[tuple[int, str]]]]:
    """Return (input, reference, predictions by step) of each sample.

    A prediction that is the same as at the evaluation before is left out, but for the last.
    """
    texts: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for step, samples in history.samples:
        for text, gold, found in samples:
            texts.setdefault((text, gold), []).append((step, found))
    return [(text, gold, _changes(predictions)) for (text, gold), predictions in texts.items()]


def _changes(predictions: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """Return the first of equal predictions in a row, and the last of all."""
    last = len(predictions) - 1
    return [one for i, one in enumerate(predictions) if i in (0, last) or one[1] != predictions[i - 1][1]]
