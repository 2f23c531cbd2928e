"""Progress of library calls: the command's in a terminal, a bar in a notebook, nothing elsewhere or if quiet."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

import attnkit
from attnkit.cli._train import follow
from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
from attnkit.engine.events import TrainingFinished, TrainingStarted, ValidationFinished
from attnkit.plotting.curves import MAX_POINTS, GrowingCurve
from attnkit.plotting.html.chart import COLOURS
from attnkit.progress import console
from attnkit.progress.calls import place_of_progress
from attnkit.progress.notebook import TrainingBar
from attnkit.training.records import EvaluationRecord, StepRecord

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SETTINGS = {"model.d_model": 16, "model.n_heads": 2, "model.d_ff": 32, "evaluation.every_steps": 4}


def train(workshop: Any, run: Path, **more: Any) -> attnkit.Translator:
    files = {f"valid_{side}": workshop.file(f"valid.{side}") for side in ("src", "tgt")}
    sides = workshop.file("train.src"), workshop.file("train.tgt")
    return attnkit.train(*sides, run, preset="tiny", max_steps=8, device="cpu", settings=SETTINGS, **files, **more)


def test_a_terminal_shows_what_the_command_shows(workshop: Any, tmp_path: Path, terminal: Any) -> None:
    events: list[Any] = []
    screen = terminal()
    train(workshop, tmp_path / "run", on_event=events.append)
    called = screen.permanent()
    assert "\r\x1b[K" in screen.getvalue() and "█░" in screen.getvalue(), "a line that is drawn anew"
    assert [line[:11] for line in called if "  dev  " in line] == ["step      4", "step      8"]
    other = terminal()
    with console.StatusLine() as line:
        shown = [event for event in events if not isinstance(event, (WarningEvent, DataCheckEvent))]
        follow(iter(shown), line, lambda: None, lambda outcome: None)
    assert called == other.permanent() and len(called) > 5


def test_quiet_and_no_terminal_show_nothing(
    workshop: Any, tmp_path: Path, terminal: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    train(workshop, tmp_path / "plain")
    attnkit.align(workshop.file("train.src"), workshop.file("train.tgt"))
    screen = terminal()
    train(workshop, tmp_path / "quiet", quiet=True)
    attnkit.align(workshop.file("train.src"), workshop.file("train.tgt"), quiet=True)
    assert screen.getvalue() == ""
    assert capsys.readouterr() == ("", "")


def test_warnings_are_issued_once_and_do_not_share_a_line(workshop: Any, tmp_path: Path, terminal: Any) -> None:
    screen = terminal()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        train(workshop, tmp_path / "run")
    texts = [str(one.message) for one in caught]
    assert texts and len(set(texts)) == len(texts)
    assert not any(text in screen.getvalue() for text in texts)


def test_other_long_calls_show_a_line_that_is_erased(
    workshop: Any, trained: Path, tmp_path: Path, terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = workshop.file("train.src"), workshop.file("train.tgt")
    screen = terminal()
    attnkit.align(*sides)
    attnkit.clean(*sides, tmp_path / "clean")
    attnkit.vocab(list(sides))
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    attnkit.Translator.load(trained, device="cpu").translate(["1 2", "3"], beam_size=1)
    said = screen.getvalue()
    for text in ("read ", "judging the alignment", "reading ", " lines  "):
        assert text in said
    assert said.endswith("\r\x1b[K") and "\n" not in said


def test_a_notebook_shows_a_bar_with_a_curve(
    workshop: Any, tmp_path: Path, notebook: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attnkit.progress.notebook.INTERVAL", 0.0)
    train(workshop, tmp_path / "run")
    (shown,) = notebook  # one output, replaced
    done = [float(re.findall(r'aria-valuenow="(\d+)"', one["text/html"])[0]) for one in shown]
    assert done == sorted(done) and done[-1] == 100 and len({*done}) >= 8
    last = shown[-1]["text/html"]
    assert last.count("<polyline") == 2 and "development loss" in last and "done: 8 steps" in last
    assert "<script" not in last and "http" not in last
    assert "100%" in shown[-1]["text/plain"], "for consoles"
    notebook.clear()
    train(workshop, tmp_path / "quiet", quiet=True)
    attnkit.vocab(workshop.file("train.src"), quiet=True)
    assert notebook == []
    attnkit.vocab(workshop.file("train.src"))
    assert [bool(one["text/html"]) for one in notebook[0]] == [True, False]


def test_a_bar_says_what_stopped_it(workshop: Any, tmp_path: Path, notebook: Any) -> None:
    def stop(event: Any) -> None:
        if getattr(event, "step", 0) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(workshop, tmp_path / "run", on_event=stop)
    assert "stopped by KeyboardInterrupt" in notebook[0][-1]["text/html"]


def test_nothing_in_a_bar_is_markup(notebook: Any) -> None:
    bar = TrainingBar()
    bar.show(StatusEvent("<script>alert(1)</script>"))
    bar.show(TrainingStarted(0, 10, {"<b>": 2}, "<i>", '"&'))
    bar.show(ValidationFinished(EvaluationRecord(1, 1.0, {"<u>": 1.0}, True), []))
    bar.show(TrainingFinished("steps", 1, "<s>", {"<u>": 1.0}))
    pages = [one["text/html"] for one in notebook[0]]
    assert len(pages) == 3 and "&lt;script&gt;" in pages[0] and "&lt;u&gt;" in pages[-1]
    assert not any(re.search("<(script|b|i|u|s)>", page) for page in pages)
    assert not bar.show(WarningEvent("none of its business"))


def test_where_progress_is_shown(monkeypatch: pytest.MonkeyPatch, terminal: Any) -> None:
    terminal()
    running: Any = ModuleType("IPython")
    monkeypatch.setitem(sys.modules, "IPython", running)
    for shell, expected in (
        (None, "terminal"),
        (SimpleNamespace(), "terminal"),
        (SimpleNamespace(kernel=1), "notebook"),
    ):
        running.get_ipython = lambda shell=shell: shell
        assert place_of_progress(quiet=False) == expected
        assert place_of_progress(quiet=True) == "nowhere"
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, expected in (("0", "notebook"), ("1", "nowhere")):
        monkeypatch.setenv("RANK", rank)
        assert place_of_progress(quiet=False) == expected


def test_ipython_is_never_imported(workshop: Any, tmp_path: Path) -> None:
    code = (
        "import sys, attnkit\n"
        f"attnkit.word2vec({str(workshop.file('text.txt'))!r}, {str(tmp_path / 'run')!r}, settings={{'dim': 4}})\n"
        "assert not any(name.split('.')[0] in ('IPython', 'ipykernel', 'ipywidgets') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


@pytest.mark.slow
def test_a_running_notebook_shows_the_bar(workshop: Any, tmp_path: Path) -> None:
    code = (
        "import attnkit\n"
        f"attnkit.word2vec({str(workshop.file('text.txt'))!r}, {str(tmp_path / 'run')!r}, settings={{'dim': 4}})"
    )
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(book, timeout=120, kernel_name="python3").execute()
    pages = [output["data"].get("text/html", "") for output in book.cells[0].outputs if "data" in output]
    assert 'role="progressbar"' in pages[0] and 'aria-valuenow="100"' in pages[0]
    assert "done: " in pages[0] and "<script" not in pages[0]


@pytest.mark.parametrize("n", [1, 3, MAX_POINTS - 1, MAX_POINTS, 5 * MAX_POINTS + 7])
def test_a_growing_curve_averages_neighbours(n: int) -> None:
    curve = GrowingCurve()
    for i in range(n):
        curve.add(i, float(i * i % 91))
        curve.add(i, float("nan"))
    every = 1
    while n >= every * MAX_POINTS:
        every *= 2
    groups = [range(at, min(at + every, n)) for at in range(0, n, every)]
    assert curve.x == [group[-1] for group in groups]
    assert curve.y == pytest.approx([sum(i * i % 91 for i in group) / len(group) for group in groups])


def test_curves_are_seen_on_light_and_dark_pages() -> None:
    """Contrast as WCAG 2.2 defines it: at least 3 for what is drawn."""

    def luminance(colour: str) -> float:
        parts = [value / 255 for value in bytes.fromhex(colour[1:])]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for colour in COLOURS:
        for page in ("#ffffff", "#111418"):
            dark, light = sorted((luminance(colour), luminance(page)))
            assert (light + 0.05) / (dark + 0.05) >= 3, (colour, page)


def test_a_step_that_is_skipped_leaves_the_curve(notebook: Any) -> None:
    bar = TrainingBar()
    for step in (1, 2, 3):
        loss = float("nan") if step == 2 else 2.0
        bar.show(StepRecord(step, 0.1, loss, 0.1, 1.0, 9, 9 * step, step / 3, skipped=step == 2))
    assert bar.html().count("<polyline") == 1 and "nan" not in bar.html()
