"""Averaging checkpoints: the mean by hand, who names it, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.checkpoints.weights import tensors_of
from attnkit.cli.average import command
from attnkit.engine.averaging import average_run
from attnkit.errors import RunError, UsageError
from attnkit.tasks.translation.loading import load_run


@pytest.fixture(scope="module")
def run(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with the checkpoints 4, 8 and 12."""
    path = tmp_path_factory.mktemp("averaging") / "run"
    workshop.train(workshop.configure(evaluation={"every_steps": 4}, checkpoints__keep_last=3), path)
    assert RunFolder(path).steps() == [4, 8, 12]
    return path


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(folder / "model.safetensors")


def mean(run: Path, steps: list[int]) -> dict[str, torch.Tensor]:
    found = [weights(run / f"checkpoints/step-{step}") for step in steps]
    return {name: sum(f[name].double() for f in found).div(len(found)).float() for name in found[0]}


@pytest.mark.parametrize(
    ("n", "names", "steps"), [(None, [], [4, 8, 12]), (2, [], [8, 12]), (None, ["step-4", "step-12"], [4, 12])]
)
def test_the_average_is_the_mean(run: Path, tmp_path: Path, n: int | None, names: list[str], steps: list[int]) -> None:
    path = tmp_path / "run"
    shutil.copytree(run, path)
    done = average_run(path, n, names)
    assert done.names == [f"step-{step}" for step in steps]
    found, expected = weights(path / "averaged"), mean(path, steps)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-7)
    assert (path / "best").read_text() == "averaged\n"
    loaded = load_run(path, device="cpu")
    assert loaded.checkpoint == "averaged"
    for name, tensor in tensors_of(loaded.model).items():
        assert torch.equal(tensor, found[name])


def test_too_few_checkpoints_are_refused(run: Path) -> None:
    with pytest.raises(RunError, match="3 scheduled checkpoints, fewer than 4") as caught:
        average_run(run, 4, [])
    assert caught.value.help is not None and "checkpoints.keep_last" in caught.value.help
    with pytest.raises(RunError, match="at least two checkpoints"):
        average_run(run, None, ["step-4"])
    with pytest.raises(RunError, match="no checkpoint step-5"):
        average_run(run, None, ["step-4", "step-5"])
    with pytest.raises(UsageError, match="cannot be combined"):
        average_run(run, 2, ["step-4"])
    assert not (run / "averaged").exists()


def test_what_a_stop_saved_counts_only_where_it_is_named(workshop: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    config = workshop.configure(evaluation={"every_steps": 4}, checkpoints__keep_last=3)
    workshop.train(config, path, stops=(8,))  # four steps, two batches of an evaluation, two steps
    assert RunFolder(path).steps() == [4, 6, 8, 12]
    assert average_run(path, None, []).names == ["step-4", "step-8", "step-12"]
    assert average_run(path, 2, []).names == ["step-8", "step-12"]
    with pytest.raises(RunError, match="3 scheduled checkpoints, fewer than 4"):
        average_run(path, 4, [])
    assert average_run(path, None, ["step-6", "step-8"]).names == ["step-6", "step-8"]


def test_checkpoints_that_are_saved_every_so_often_count(workshop: Any, tmp_path: Path) -> None:
    config = workshop.configure(evaluation={"every_steps": 50}, checkpoints={"save_every": 5, "keep_last": 3})
    workshop.train(config, tmp_path / "run", stops=(7,))
    assert average_run(tmp_path / "run", None, []).names == ["step-5", "step-10", "step-12"]


def test_a_damaged_checkpoint_is_told(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run"
    shutil.copytree(run, path)
    (path / "checkpoints/step-12/model.safetensors").write_bytes(b"")
    (told,) = average_run(path, None, []).warnings
    assert "model.safetensors of checkpoint step-12" in told
    command(path)
    out, err = capsys.readouterr()
    assert err == f"warning: {told}\n" and "averaged step-4, step-8 into" in out


def test_training_can_end_with_an_average(workshop: Any, tmp_path: Path) -> None:
    changes = {"evaluation": {"every_steps": 4}, "checkpoints__average": 3, "limits__metric": "loss"}
    done = workshop.train(workshop.configure(**changes), tmp_path / "run")
    found, expected = weights(tmp_path / "run/averaged"), mean(tmp_path / "run", [4, 8, 12])
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-7)
    assert done.best in ("averaged", "step-12")
    assert (tmp_path / "run/best").read_text().strip() == done.best
    again = workshop.train(workshop.configure(**changes), tmp_path / "run")
    assert again.already and again.metrics == done.metrics
    (tmp_path / "run/best").write_text("step-12\n")  # as a kill just before the average is named leaves it
    assert workshop.train(workshop.configure(**changes), tmp_path / "run") == again
