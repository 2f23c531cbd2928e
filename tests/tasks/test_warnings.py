"""What is not as it should be reaches whoever called: Python's warnings in the library, stderr in commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import attnkit


def damage(run: Path, step: int) -> None:
    (run / f"checkpoints/step-{step}/model.safetensors").write_bytes(b"")


def texts(told: pytest.WarningsRecorder) -> list[str]:
    """Return what was told by this file's calls."""
    return [str(warning.message) for warning in told if warning.filename == __file__]


def test_training_as_a_library_warns(workshop: Any, tmp_path: Path) -> None:
    """Of the text when it is first looked through, and of a checkpoint that is passed over when it continues."""
    lines = workshop.file("train.src").read_text().splitlines()
    (tmp_path / "a.src").write_text("".join(line + "\n" for line in [*lines[:4], "", *lines[5:]]))
    settings = dict(
        text.split("=", 1) for text in workshop.settings(evaluation={"every_steps": 3}, limits__max_steps=6)
    )
    run, given = tmp_path / "run", {key: json.loads(value) for key, value in settings.items()}

    def train() -> None:
        attnkit.train(tmp_path / "a.src", workshop.file("train.tgt"), run, preset="tiny", settings=given)

    with pytest.warns(UserWarning) as told:
        train()
    assert f"{tmp_path / 'a.src'}: left out: 1 pair with a blank source, first in line 5" in texts(told)
    damage(run, 6)
    with pytest.warns(UserWarning) as told:
        train()
    (text,) = texts(told)
    assert text.startswith("model.safetensors of checkpoint step-6 cannot be used")
    assert (run / "checkpoints/step-6/model.safetensors").stat().st_size > 0, "trained again from step 3"


def test_loading_as_a_library_warns(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    (run / "best").unlink()
    damage(run, 12)
    with pytest.warns(UserWarning) as told:
        translator = attnkit.load(run, run, device="cpu")
    (text,) = texts(told)
    assert text.startswith("model.safetensors of checkpoint step-12 cannot be used")
    assert translator.summary.checkpoint == "step-10"


def test_exporting_warns(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ctranslate2")
    from attnkit.cli.export import command

    run = tmp_path / "run"
    shutil.copytree(trained, run)
    damage(run, 12)
    command(run, tmp_path / "exported", "ctranslate2", checkpoint="last")
    out, err = capsys.readouterr()
    assert out.startswith("wrote step-10 to ")
    assert err.startswith("warning: model.safetensors of checkpoint step-12 cannot be used")
