"""``finetune`` however it ends: killed while it encodes and between two saves, refused by the disk, stopped."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.cli.main import main
from attnkit.engine.gradient_session import GradientSession

SETS = ["limits.max_steps=6", "evaluation.every_steps=3", "optimization.batch_tokens=300", "model.dropout=0.3"]
SETS += ["finetuning.freeze_layers=1", "finetuning.class_weights=balanced", "checkpoints.keep_last=1"]
STEADY = ["--precision", "float32", "--device", "cpu", "--threads", "1", *(w for one in SETS for w in ("--set", one))]


@pytest.fixture(scope="module")
def command(workshop: Any, pretrained: Path) -> list[str]:
    table = workshop.file("table.tsv")
    return ["finetune", str(pretrained), "--task", "text-classification", "--train", str(table), *STEADY, "-o"]


@pytest.fixture(scope="module")
def whole(commands: Any, command: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[Any]]:
    """Return what a run leaves that nothing befell, and the calls with which it changed the disk."""
    run = tmp_path_factory.mktemp("whole") / "run"
    ended = commands.done(*command, run, quick=True)
    return commands.outcome(run), ended.calls


def test_a_killed_command_ends_in_the_same_bits(
    commands: Any, command: list[str], whole: tuple[Any, list[Any]], tmp_path: Path
) -> None:
    expected, calls = whole
    saves = [k for k, (call, path) in enumerate(calls, 1) if call == "replace" and "/checkpoints/" in path]
    for k in (20, saves[1] - 3):
        assert commands(*command, tmp_path / "run", kill_call=k, quick=True).code == -9
    assert RunFolder(tmp_path / "run").steps() == [3]
    commands.done(*command, tmp_path / "run", quick=True)
    assert commands.outcome(tmp_path / "run") == expected


def test_a_disk_that_takes_no_more_is_told_and_the_same_command_goes_on(
    commands: Any, command: list[str], whole: tuple[Any, list[Any]], tmp_path: Path
) -> None:
    ended = commands(*command, tmp_path / "run", largest_file=9000, quick=True)
    assert ended.code == 5 and "File too large" in ended.err and "Traceback" not in ended.err, ended.err
    commands.done(*command, tmp_path / "run", quick=True)
    assert commands.outcome(tmp_path / "run") == whole[0]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_same_command_goes_on(
    commands: Any,
    command: list[str],
    whole: tuple[Any, list[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    save = GradientSession.log_and_save

    def stop(session: GradientSession, record: Any, writer: Any) -> None:
        save(session, record, writer)
        if session.step == 4:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(GradientSession, "log_and_save", stop)
        patch.setattr(sys, "argv", ["attnkit", *command, str(tmp_path / "run")])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 75 and "stopped at step 5; everything is saved" in capsys.readouterr().err
    assert RunFolder(tmp_path / "run").steps()[-1] == 5
    commands.done(*command, tmp_path / "run", quick=True)
    assert commands.outcome(tmp_path / "run") == whole[0]
