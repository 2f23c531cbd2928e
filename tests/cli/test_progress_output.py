"""Progress on standard error: silenced by --quiet, thinned in short runs; the width of help pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attnkit.cli.main import COMMANDS, GROUPS, import_command
from attnkit.cli.options import command_hints
from attnkit.plotting.progress_text import SAMPLE_INTERVAL, SamplePrinter, scores
from attnkit.progress import console

Call = Callable[..., tuple[int, str, str]]

SILENT = {
    *("train", "pretrain-mlm", "pretrain-clm", "finetune", "demo", "vocab", "clean", "translate", "align", "score"),
    *(
        "back-translate",
        "augment",
        "distill",
        "compare",
        "report",
        "plan",
        "sweep",
        "toy-corpus",
        "embed",
        "predict",
        "word2vec train",
        "word2vec phrases",
        "word2vec cluster",
        "word2vec project",
    ),
}
"""Commands that show progress or totals on standard error."""


def test_every_command_with_progress_has_quiet() -> None:
    tables = {"": COMMANDS, **{f"{name} ": group for name, group in GROUPS.items()}}
    found = {
        f"{prefix}{name}"
        for prefix, table in tables.items()
        for name, (module, _) in table.items()
        if "quiet" in command_hints(import_command(module))
    }
    assert found == SILENT


def test_quiet_training_prints_its_result_only(call: Call, workshop: Any, tmp_path: Path) -> None:
    arguments = workshop.arguments("transformer", tmp_path / "run")
    code, out, err = call(*arguments, "--max-steps", 4, "--quiet")
    assert (code, out.splitlines()[0]) == (0, "done: 4 steps (max_steps reached); best: step-4")
    assert [line for line in err.splitlines() if not line.startswith("warning: ")] == []
    code, loud, err = call(*workshop.arguments("transformer", tmp_path / "loud"), "--max-steps", 4)
    assert (code, loud.splitlines()[:2]) == (0, out.splitlines()[:2]) and "  dev  " in err  # quiet for one call only


def test_quiet_keeps_errors_and_warnings(
    call: Call, trained: Path, workshop: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = call("translate", trained, "-q", "-i", tmp_path / "missing")
    assert (code, out) == (2, "") and err.startswith("error: no such file")
    pair = (workshop.file("test.src"), workshop.file("test.tgt"))
    code, scores, err = call("score", trained, *pair, "-q")
    assert code == 0 and err == ""
    code, same, err = call("score", trained, *pair)
    assert (code, same) == (0, scores) and "perplexity" in err
    console.set_quiet(True)
    try:
        console.info("message")
        console.warn("careful")
        with console.StatusLine() as status:
            status.say("message")
            status.update("message")
            status.warn("again")
    finally:
        console.set_quiet(False)
    assert capsys.readouterr().err == "warning: careful\nwarning: again\n"


def test_samples_of_a_short_run_are_those_of_its_first_and_last_evaluation() -> None:
    shown: list[str] = []
    now = [0.0]
    printer = SamplePrinter(shown.append, lambda: now[0])
    for evaluation in range(6):
        printer.add([("a", "b", f"{evaluation}"), ("c", "d", "e" * 100)])
        now[0] += 10
    printer.finish()
    printer.finish()
    assert [text.splitlines()[2].split() for text in shown] == [["model", "0"], ["model", "5"]]
    assert all(len(line) <= 80 for text in shown for line in text.splitlines())
    # A long run shows them at intervals.
    shown.clear()
    printer = SamplePrinter(shown.append, lambda: now[0])
    for evaluation in range(4):
        printer.add([("a", "b", f"{evaluation}")])
        now[0] += SAMPLE_INTERVAL
    assert len(shown) == 4


def test_every_help_page_fits_80_columns(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    names = [[name] for name in COMMANDS] + [[name, inner] for name, group in GROUPS.items() for inner in group]
    pages = [(name, call(*name, "--help")[1]) for name in names]
    assert [(name, line) for name, page in pages for line in page.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("width", [60, 80, 132])
def test_help_uses_the_width_of_the_terminal(call: Call, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for command in (["translate"], ["train"], ["word2vec", "train"]):
        page = call(*command, "--help")[1].partition("Options:\n")[2]
        longest = max(map(len, page.splitlines()))
        assert min(width - 20, 98) < longest < width  # 98: the widest page of earlier versions


def test_the_time_of_a_run_has_the_unit_that_fits() -> None:
    shown = [scores({"minutes": seconds / 60}) for seconds in (0.42, 9.94, 9.96, 125, 3720)]
    assert shown == ["0.4s", "9.9s", "10s", "2m 05s", "1h 02m"]
