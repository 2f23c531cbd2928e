"""The page of ``attnkit report``: self-contained HTML without scripts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from attnkit.analysis.compare_translators import TestComparison
from attnkit.analysis.run_report import AttendedLine, LineMap, ReportedRun, RunReport, charts, samples_by_text
from attnkit.engine.registry import TASKS
from attnkit.plotting.attention_maps import MapSlice, display_text, entropies
from attnkit.plotting.html import escape, static_page
from attnkit.plotting.html.chart import line_chart
from attnkit.plotting.html.heat import heat_maps
from attnkit.plotting.progress_text import duration, scores

_STYLE = (
    "h3{margin:0 0 2px;font-size:14px;font-weight:600}td,th{text-align:left}td.n,th.n{text-align:right}"
    "code{overflow-wrap:anywhere;font-size:12.5px}.pair{margin-top:14px}"
)
_PAIRED = (
    "± is half of the 95 % interval, p of paired bootstrap resampling against the first run; below .05 a difference is "
    "usually called significant. Seen: source and target lines that the training text nearly has."
)


def report_page(report: RunReport) -> str:
    """Return the page of a report."""
    runs = report.runs
    title = display_text(runs[0].name) if len(runs) == 1 else f"{len(runs)} runs"
    sections = [
        _section("Runs", _runs_table(runs)),
        _section("Curves", curves_fragment(report)),
        _section("Settings that differ", _settings(runs)) if len(runs) > 1 else "",
        *(_test_section(report, src) for src in dict.fromkeys(one.src for one in report.tests)),
        _section("Attention", "".join(map(_line, report.attention))),
        _section("Samples of the development set", "".join(_samples(run) for run in runs if run.history.samples)),
        _section("Train again", "".join(map(_command, runs))),
    ]
    return static_page("attnkit report", title, [section for section in sections if section], _STYLE)


def _section(title: str, content: str) -> str:
    return f'<section class="card"><h2>{title}</h2>{content}</section>' if content else ""


def _text(text: object) -> str:
    """Return text as HTML, without characters that change the direction of others."""
    return f"<bdi>{escape(display_text(str(text)))}</bdi>" if text != "" else ""


def _cell(text: object, kind: str = "") -> str:
    return f'<td class="{kind}">{_text(text)}</td>'


def _table(label: str, heads: Sequence[tuple[str, str]], rows: Iterable[str]) -> str:
    """Return a table that scrolls; heads have a text and a class."""
    head = "".join(f'<th scope="col" class="{kind}">{_text(text)}</th>' for text, kind in heads)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    scroll = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(display_text(label))}">'
    return f"{scroll}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _named_texts(label: str, texts: Sequence[tuple[str, str]]) -> str:
    """Return a table of texts with their names."""
    rows = (f"{_cell(name, 'n')}{_cell(text, 'words')}" for name, text in texts)
    return f'<div class="pair">{_table(label, [(label, "n"), ("text", "words")], rows)}</div>'


def _runs_table(runs: Sequence[ReportedRun]) -> str:
    heads = [("run", "words"), ("task", ""), ("model", ""), ("state", ""), ("best score", ""), ("steps", "n")]
    heads += [("time", "n"), ("parameters", "n"), ("device", ""), ("machine", "words"), ("attnkit", "")]
    rows = []
    for run in runs:
        row, facts = run.row, run.facts
        best = "-"
        if row.metric and row.best is not None:
            best = f"{scores({row.metric: row.best})} ({row.checkpoint})"
        time = "-" if row.minutes is None else duration(60 * row.minutes)
        cells = [_cell(run.name, "words"), _cell(row.task or "-"), _cell(row.model or "-"), _cell(row.state)]
        cells += [_cell(best), _cell(f"{row.step:,}", "n"), _cell(time, "n"), _cell(facts.get("parameters", "-"), "n")]
        cells += [_cell(facts.get("device", "-")), _cell(facts.get("machine", "-"), "words")]
        rows.append("".join([*cells, _cell(facts.get("attnkit", "-"))]))
    problems = (f'<p class="quiet">{_text(f"{run.name}: {run.row.problem}")}</p>' for run in runs if run.row.problem)
    return _table("Runs", heads, rows) + "".join(problems)


def curves_fragment(report: RunReport) -> str:
    """Return the charts of a report as an HTML fragment."""
    drawn = []
    for chart in charts(report):
        picture = line_chart(chart.curves, x_label=chart.x_label, title=chart.title)
        drawn.append(f'<div><div style="font-weight:600">{escape(chart.title)}</div>{picture}</div>')
    style = "display:flex;flex-wrap:wrap;gap:18px 24px"
    return f'<div style="{style}">{"".join(drawn)}</div>' if drawn else "<p>Nothing was recorded yet.</p>"


def _settings(runs: Sequence[ReportedRun]) -> str:
    names = dict.fromkeys(name for run in runs for name in run.row.differs)
    rows = []
    for name in names:
        rows.append(_cell(name) + "".join(_setting(run, name) for run in runs))
    heads = [("key", ""), *((run.name, "words") for run in runs)]
    return _table("Settings that differ", heads, rows) if rows else "<p>None.</p>"


def _setting(run: ReportedRun, name: str) -> str:
    """Return a cell with a value and its origin, where the run has recorded it."""
    origin = (run.row.origins or {}).get(name, "")
    shown = f' <span class="quiet">{_text(origin)}</span>' if origin else ""
    return f'<td class="words">{_text(_value(run.row.differs.get(name)))}{shown}</td>'


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return "-" if value is None else str(value)


def _samples(run: ReportedRun) -> str:
    parts = []
    for number, (text, gold, predictions) in enumerate(samples_by_text(run.history), 1):
        texts = [("input", text), ("reference", gold), *((f"step {step:,}", found) for step, found in predictions)]
        parts.append(_named_texts(f"sample {number}", texts))
    return f"<details open><summary>{_text(run.name)}</summary>{''.join(parts)}</details>"


def _test_section(report: RunReport, src: str | None) -> str:
    tests = [one for one in report.tests if one.src == src]
    parts = [f'<p class="quiet">{_PAIRED}</p>', _test_scores(tests)]
    for one in tests:
        title = f"<summary>Where {_text(one.system)} differs from the first run</summary>"
        parts.append(f"<details>{title}{_groups(one)}{_changed(one)}</details>")
    return _section(f"Test: {_text(src)}, {tests[0].n_lines:,} lines", "".join(parts))


def _test_scores(tests: Sequence[TestComparison]) -> str:
    columns = [name for score in tests[0].scores for name in (score.name, "±", "p")]
    heads = [("run", "words"), *((name, "n") for name in (*columns, "seen in training"))]
    first = [text for one in tests[0].scores for text in (f"{one.baseline:.2f}", f"{one.baseline_interval:.2f}", "")]
    rows = [_cell(tests[0].baseline, "words") + "".join(_cell(text, "n") for text in (*first, ""))]
    for one in tests:
        seen = "unknown" if one.seen is None else f"{one.seen.source:,} and {one.seen.target:,}"
        texts = [
            text
            for score in one.scores
            for text in (f"{score.system:.2f}", f"{score.system_interval:.2f}", f"{score.p_value:.4f}")
        ]
        rows.append(_cell(one.system, "words") + "".join(_cell(text, "n") for text in (*texts, seen)))
    return _table("Test scores", heads, rows)


def _groups(one: TestComparison) -> str:
    heads = [("property", ""), ("group", ""), *((name, "n") for name in ("lines", "BLEU of the first", "BLEU", ""))]
    rows = []
    for group in one.groups or []:
        change = f"{group.system_bleu - group.baseline_bleu:+.2f}"
        values = (f"{group.n_lines:,}", f"{group.baseline_bleu:.2f}", f"{group.system_bleu:.2f}", change)
        rows.append(f"{_cell(group.property)}{_cell(group.group)}{''.join(_cell(value, 'n') for value in values)}")
    return _table("Groups of lines", heads, rows)


def _changed(one: TestComparison) -> str:
    parts = []
    for line in one.changed or []:
        before, after = f"first run, chrF {line.baseline_chrf:.1f}", f"this run, chrF {line.system_chrf:.1f}"
        texts = [
            ("source", line.source or ""),
            ("reference", line.reference),
            (before, line.baseline),
            (after, line.system),
        ]
        parts.append(_named_texts(f"line {line.line:,}", texts))
    return "".join(parts)


def _line(line: AttendedLine) -> str:
    maps = "".join(heat_maps(list(map(_slice, one.maps)), f"{one.run}: {one.text}") for one in line.seen)
    return f'<div class="pair"><h3 dir="auto">{_text(line.source)}</h3>{maps}</div>'


def _slice(one: LineMap) -> MapSlice:
    weights = np.array(one.weights, np.float64).reshape(len(one.queries), len(one.keys))
    return MapSlice(one.title, one.axes, one.queries, one.keys, weights, float(entropies(weights)))


def _command(run: ReportedRun) -> str:
    if run.row.task not in TASKS:
        return ""
    config = shlex.quote(f"{run.name}/config.yaml")
    text = f"attnkit {TASKS[run.row.task].train_command} --config {config} -o NEW"
    return f"<p><code>{escape(display_text(text))}</code></p>"
