"""``pretrain-mlm`` and ``pretrain-clm`` however they end: killed, refused by the disk, stopped, diverged."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.gradient_session import GradientSession
from attnkit.tasks.language_modeling import evaluate as pretrain_scores

Call = Callable[..., tuple[int, str, str]]
NAMES = ["masked tokens", "next words"]
FIRST = ["masked tokens", pytest.param("next words", marks=pytest.mark.slow)]


def command(commands: Any, name: str, run: Path) -> list[str]:
    """Return the command line of a task's own command."""
    train, flag, task, data, *rest = commands.train_task(name, run, model__dropout=0.3)
    assert (train, flag, data) == ("train", "--task", "--data")
    return [f"pretrain-{task}", *rest]


@pytest.fixture(scope="module")
def wholes(commands: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what runs leave that nothing befell, and the calls with which they changed the disk."""
    found = {}
    for name in NAMES:
        run = tmp_path_factory.mktemp("whole") / "run"
        ended = commands.done(*command(commands, name, run), quick=True)
        found[name] = commands.outcome(run), ended.calls
    return found


@pytest.mark.parametrize("name", [NAMES[0], pytest.param(NAMES[1], marks=pytest.mark.slow)])
def test_a_killed_command_ends_in_the_same_bits(
    commands: Any, wholes: dict[str, Any], tmp_path: Path, name: str
) -> None:
    """Killed while the text is encoded, and between two saves."""
    expected, calls = wholes[name]
    saves = [k for k, (call, path) in enumerate(calls, 1) if call == "replace" and "/checkpoints/" in path]
    words = command(commands, name, tmp_path / "run")
    for k in (20, saves[1] - 3):
        assert commands(*words, kill_call=k, quick=True).code == -9
    assert RunFolder(tmp_path / "run").steps() == [3]
    commands.done(*words, quick=True)
    assert commands.outcome(tmp_path / "run") == expected


@pytest.mark.parametrize("name", FIRST)
def test_a_disk_that_takes_no_more_is_told_and_the_same_command_goes_on(
    commands: Any, wholes: dict[str, Any], tmp_path: Path, name: str
) -> None:
    words = command(commands, name, tmp_path / "run")
    ended = commands(*words, largest_file=9000, quick=True)
    said = [line for line in ended.err.splitlines() if line.startswith(("error: ", "  at ", "help: "))]
    assert ended.code == 5 and "File too large" in said[0] and str(tmp_path / "run") in said[0], ended.err
    assert len(said) <= 3 and said[-1].endswith("run the same command again")
    commands.done(*words, quick=True)
    assert commands.outcome(tmp_path / "run") == wholes[name][0]


@pytest.mark.parametrize("name", NAMES)
def test_ctrl_c_saves_and_the_same_command_goes_on(
    call: Call, commands: Any, wholes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    save = GradientSession.log_and_save

    def stop(session: GradientSession, record: Any, writer: Any) -> None:
        save(session, record, writer)
        if session.step == 4:
            os.kill(os.getpid(), signal.SIGINT)

    words = command(commands, name, tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(GradientSession, "log_and_save", stop)
        code, out, err = call(*words)
    assert (code, out) == (75, "") and "error: stopped at step 5; everything is saved" in err
    assert RunFolder(tmp_path / "run").steps()[-1] == 5
    assert call(*words)[0] == 0
    assert commands.outcome(tmp_path / "run") == wholes[name][0]


@pytest.mark.parametrize("name", FIRST)
def test_a_loss_that_is_no_number_ends_with_6(
    call: Call, commands: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def spoilt(hidden: torch.Tensor, *arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return hidden.sum() * torch.nan, hidden.detach().sum() * torch.nan

    monkeypatch.setattr(pretrain_scores, "linear_cross_entropy", spoilt)
    words = command(commands, name, tmp_path / "run")
    code, out, err = call(*words, "--set", "limits.max_steps=20", "--set", "evaluation.every_steps=50")
    assert (code, out) == (6, "") and "not finite in 10 steps in a row" in err
    assert "help: lower optimization.learning_rate" in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("output", "code", "said"),
    [("text.txt/run", 5, "text.txt"), ("text.txt", 4, "text.txt is not a folder")],
    ids=["in a file", "a file"],
)
def test_an_output_that_cannot_be_a_folder_is_told(
    call: Call, commands: Any, tmp_path: Path, output: str, code: int, said: str
) -> None:
    (tmp_path / "text.txt").write_text("mine\n")
    found, out, err = call(*command(commands, "masked tokens", tmp_path / output))
    assert (found, out) == (code, "") and said in err and "Traceback" not in err, err
    assert (tmp_path / "text.txt").read_text() == "mine\n"
