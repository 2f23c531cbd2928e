"""``attnkit report``: what its page, pictures and JSON hold, for runs of any task and state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import attnkit
from attnkit.analysis.report_page import report_page
from attnkit.analysis.run_history import RunHistory, read_history
from attnkit.analysis.run_report import MOST_RUNS, ReportRequest, build_report, charts, samples_by_text
from attnkit.checkpoints.logs import append_record
from attnkit.errors import RunError, UsageError

Call = Callable[..., tuple[int, str, str]]
VOID = ("meta", "line", "polyline", "circle", "img", "br")


class Page(HTMLParser):
    """Headings, tables and texts of a page; fails on scripts and on elements that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.cells: list[str] = []
        self.n_lines = 0
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "iframe", "img", "object") and not [a for a, _ in attrs if a[:2] == "on"]
        self.n_lines += tag == "polyline"
        if tag in ("td", "h2"):
            (self.cells if tag == "td" else self.headings).append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag, texts in (("td", self.cells), ("h2", self.headings)):
            if tag in self.open:
                texts[-1] += data


@pytest.fixture(scope="module")
def runs(workshop: Any, whole: Path, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two translators that differ in a setting, and a BERT."""
    folder = tmp_path_factory.mktemp("reported")
    shutil.copytree(whole, folder / "usual")
    faster = workshop.configure(
        evaluation={"every_steps": 2}, optimization={"learning_rate": 0.004}, limits__max_steps=6
    )
    workshop.train(faster, folder / "faster")
    shutil.copytree(pretrained, folder / "bert")
    return [folder / "usual", folder / "faster", folder / "bert"]


def test_the_page_says_what_the_runs_recorded(runs: list[Path], workshop: Any, tmp_path: Path) -> None:
    files = workshop.file("test.src"), workshop.file("test.tgt")
    shown = attnkit.report(*runs[:2], tests=[files], texts=["1 2 3"], quiet=True)
    page, report = Page(shown.page()), shown.contents
    assert "bert" not in repr(shown) and "<svg" in shown._repr_html_()
    assert json.loads(json.dumps(shown.to_dict()))["runs"][0]["row"]["state"] == "finished"
    assert page.headings[:3] == ["Runs", "Curves", "Settings that differ"]
    assert page.headings[3].startswith(f"Test: {files[0]}, 40 lines")
    assert page.headings[4:] == ["Attention", "Samples of the development set", "Train again"]
    assert {"optimization.learning_rate", "0.004", "translation", "transformer", "finished"} <= set(page.cells)
    (test,) = report.tests
    assert {f"{score.system:.2f}" for score in test.scores} <= set(page.cells)
    assert page.n_lines == sum(len(curve.x) > 1 for chart in charts(report) for curve in chart.curves) > 8
    for run in report.runs:
        log = [json.loads(line) for line in (Path(run.name) / "metrics.jsonl").read_text().splitlines()]
        evaluations = [line for line in log if line["kind"] == "evaluation"]
        assert run.history.scores["bleu"] == [(line["step"], line["bleu"]) for line in evaluations]
        assert [step for step, _ in run.history.samples] == [line["step"] for line in evaluations]
        assert run.facts["parameters"] in page.cells and run.facts["machine"] in page.cells
        for text, gold, predictions in samples_by_text(run.history):
            assert {text, gold, predictions[-1][1]} - {""} <= set(page.cells)
    (line,) = report.attention
    assert [one.run for one in line.seen] == [str(path) for path in runs[:2]]
    for one in line.seen:
        (found,) = attnkit.Translator.load(one.run, device="cpu").translate(["1 2 3"], attention=True)
        assert one.text == found.text and found.attention is not None
        assert len(one.maps[0].weights) == len(found.attention[0])


def test_runs_of_any_task_and_state_have_a_page(runs: list[Path], tmp_path: Path, call: Call) -> None:
    killed = tmp_path / "killed"
    shutil.copytree(runs[1], killed)
    (killed / "status.json").unlink()
    (killed / "README.md").unlink()
    code, out, err = call("report", str(killed), str(runs[2]), "-o", str(tmp_path / "page.html"))
    assert (code, out) == (0, "") and err.endswith(f"wrote {tmp_path / 'page.html'}\n")
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert {"interrupted", "mlm", "translation"} <= set(page.cells)
    assert "development BLEU" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_hostile_text_is_harmless(runs: list[Path], tmp_path: Path) -> None:
    run = tmp_path / "<b>run"
    shutil.copytree(runs[1], run)
    bad = "</td><script>alert(1)</script>\u202e"
    append_record(run / "metrics.jsonl", {"kind": "samples", "step": 9, "samples": [[bad, bad, bad]]})
    (run / "README.md").write_text(f"| machine | {bad} |\n")
    text = report_page(build_report([run], ReportRequest()))
    assert any("</td><script>alert(1)</script>" in cell for cell in Page(text).cells), "as text"
    assert "<script" not in text and "\u202e" not in text


def test_pictures_and_json(runs: list[Path], tmp_path: Path, call: Call) -> None:
    pytest.importorskip("matplotlib")
    code, out, _ = call("report", str(runs[0]), "--json", "--pictures", str(tmp_path / "figures"))
    tree = json.loads(out)
    assert code == 0 and tree["runs"][0]["row"]["state"] == "finished"
    assert tree["runs"][0]["history"]["steps"] == read_history(runs[0]).steps == [10]
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"development-bleu.svg", "learning-rate.svg", "development-bleu-by-time.svg"} <= names
    assert not (tmp_path / "report.html").exists()


def test_speed_and_time_follow_from_the_log_of_times(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").touch()
    for step, minutes, tokens in ((10, 1.0, 6000), (20, 3.0, 30000)):
        append_record(tmp_path / "timings.jsonl", {"step": step, "minutes": minutes, "tokens": tokens})
    found = read_history(tmp_path)
    assert found.minutes == [(10, 1.0), (20, 3.0)] and found.speeds == [(10, 100.0), (20, 200.0)]


def test_a_sample_is_shown_where_it_changes() -> None:
    steps = [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "b")]
    history = RunHistory([], [], [], {}, [(step, [("in", "gold", text)]) for step, text in steps], [], [])
    assert samples_by_text(history) == [("in", "gold", [(1, "a"), (3, "b"), (5, "b")])]


def test_what_has_no_report(runs: list[Path], tmp_path: Path, call: Call) -> None:
    with pytest.raises(RunError, match="no such folder"):
        build_report([tmp_path / "nothing"], ReportRequest())
    with pytest.raises(RunError, match="not a run folder"):
        build_report([runs[0].parent], ReportRequest())
    with pytest.raises(UsageError, match="named twice"):
        build_report([runs[0], runs[0] / ".." / runs[0].name], ReportRequest())
    with pytest.raises(UsageError, match=f"1 to {MOST_RUNS} runs"):
        build_report([tmp_path / str(i) for i in range(MOST_RUNS + 1)], ReportRequest())
    with pytest.raises(UsageError, match="two runs are compared"):
        build_report(runs[:1], ReportRequest(tests=[(tmp_path / "a", tmp_path / "b")]))
    code, _, err = call("report", str(runs[0]), "-o", str(runs[0] / "page.html"))
    assert code == 2 and "inside the run folder" in err and not (runs[0] / "page.html").exists()
