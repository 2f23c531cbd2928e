"""Choosing, keeping and finding checkpoints; telling run folders from other things."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from attnkit.checkpoints.logs import Status
from attnkit.checkpoints.run_folder import RunFolder, is_run, removable
from attnkit.errors import RunError, SystemFailure, UsageError


def run_with(path: Path, *steps: int) -> RunFolder:
    run = RunFolder(path)
    run.lock().release()
    for step in steps:
        run.save(step, {"state.json": str(step).encode()})
    return run


def keep(keep_last: int = 3, keep_best: int = 1, lower_is_better: bool = False, **rest: Any) -> dict[str, Any]:
    return {"keep_last": keep_last, "keep_best": keep_best, "lower_is_better": lower_is_better, "metrics": {}} | rest


@pytest.mark.parametrize(
    ("retention", "protected", "gone"),
    [
        (keep(keep_last=5), [], []),
        (keep(keep_last=2, keep_best=0), [], [1, 2, 3]),
        (keep(keep_last=0, keep_best=0), [], [1, 2, 3, 4]),
        (keep(keep_last=1, keep_best=0), [2], [1, 3, 4]),
        (keep(keep_last=1, keep_best=1, metrics={1: 9.0, 2: 30.0, 3: 30.0}), [], [1, 2, 4]),
        (keep(keep_last=1, keep_best=1, lower_is_better=True, metrics={1: 2.0, 2: 1.5, 3: 3.0}), [], [1, 3, 4]),
        (keep(keep_last=1, keep_best=2, metrics={1: 1.0, 2: float("nan"), 3: float("inf"), 4: 0.5}), [], [2, 3]),
        (keep(keep_last=1, keep_best=1, metrics={99: 50.0}), [], [1, 2, 3, 4]),
    ],
)
def test_which_checkpoints_may_go(retention: dict[str, Any], protected: list[int], gone: list[int]) -> None:
    assert removable([3, 1, 5, 2, 4], protected, **retention) == gone


def test_rotation_spares_the_newest_and_the_best(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 1, 2, 10, 11)
    run.set_best("step-1")
    assert run.apply_retention(keep_last=1, keep_best=1, metrics={2: 30.0, 10: 20.0}) == ["step-10"]
    assert run.steps() == [1, 2, 11]
    (run.path / "best").write_text("nonsense")
    assert run.apply_retention(keep_last=1, keep_best=1, metrics={2: 30.0}) == ["step-1"]
    assert run.steps() == [2, 11]


def test_names_of_checkpoints(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 1, 2, 10)
    assert [run.checkpoint(name)[0].step for name in (None, "last", "step-2")] == [10, 10, 2]
    run.set_best("step-2")
    assert [run.checkpoint(name)[0].step for name in (None, "best", "last")] == [2, 2, 10]
    run.save_averaged(10, {"state.json": b"mean"})
    run.save_averaged(10, {"state.json": b"mean of more"})
    run.set_best("averaged")
    chosen, warnings = run.checkpoint()
    assert (chosen.name, chosen.step, chosen.read("state.json"), warnings) == ("averaged", 10, b"mean of more", [])
    assert (run.path / "best").read_text() == "averaged\n"


def test_wrong_names_are_told_what_there_is(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 1, 2)
    with pytest.raises(RunError, match="has no checkpoint step-3") as caught:
        run.checkpoint("step-3")
    assert caught.value.help == "available: step-1, step-2"
    with pytest.raises(RunError, match="has no checkpoint step-3"):
        run.set_best("step-3")
    with pytest.raises(RunError, match="has no best checkpoint yet"):
        run.checkpoint("best")
    for name in ("../step-1", "step-01", "newest", "step-1 ", "step-٣"):
        with pytest.raises(UsageError, match="is not a checkpoint"):
            run.checkpoint(name)
    (run.path / "best").write_text("../../step-1\n")
    with pytest.raises(RunError, match="the file naming the best checkpoint is damaged"):
        run.checkpoint()


def test_a_damaged_best_is_no_reason_to_take_another_in_silence(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 1, 2)
    run.set_best("step-1")
    (run.checkpoints_path / "step-1" / "state.json").write_bytes(b"2")
    with pytest.raises(RunError, match=r"state\.json of checkpoint step-1"):
        run.checkpoint()[0].read("state.json")


def test_a_run_can_be_moved_and_copied(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 1, 2)
    run.set_best("step-1")
    shutil.move(run.path, tmp_path / "elsewhere")
    moved = RunFolder(tmp_path / "elsewhere")
    assert moved.checkpoint()[0].read("state.json") == b"1"
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", moved.path)
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    unpacked = RunFolder(tmp_path / "unpacked")
    assert [unpacked.checkpoint(f"step-{step}")[0].read("state.json") for step in unpacked.steps()] == [b"1", b"2"]
    assert not (tmp_path / "run").exists()


def test_what_is_a_run(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    assert not is_run(run.path)
    run.lock().release()
    assert is_run(run.path)
    (run.path / "lock").write_text("")
    assert not is_run(run.path)
    run.lock().release()  # a process killed while it began leaves an empty lock: that is fresh ground
    (run.path / "lock").unlink()
    run.write_status(Status(state="running"))
    assert is_run(run.path)
    (run.path / "status.json").unlink()
    run.save(1, {"a": b""})
    assert is_run(run.path)


def test_other_things_are_refused_in_plain_words(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").touch()
    for path, reading, writing in (
        (tmp_path / "nowhere", "no such run folder", None),
        (folder / "cat.jpg", "is a file, not a run folder", "is not a folder"),
        (folder, "is not a run folder", "contains other files and is not a run folder"),
    ):
        with pytest.raises(RunError, match=reading) as caught:
            RunFolder(path).checkpoint()
        assert caught.value.help
        if writing:
            with pytest.raises(RunError, match=writing):
                RunFolder(path).lock()
    run = run_with(tmp_path / "run", 5)
    with pytest.raises(RunError, match="is a checkpoint, not a run folder") as caught:
        RunFolder(run.checkpoints_path / "step-5").checkpoint()
    assert caught.value.help == f"name {run.path} and add --checkpoint step-5"
    with pytest.raises(RunError, match="has no checkpoint yet"):
        run_with(tmp_path / "begun").checkpoint()


def test_a_linked_checkpoints_folder_is_never_written_through(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 1)
    outside = tmp_path / "outside"
    run.checkpoints_path.rename(outside)
    run.checkpoints_path.symlink_to(outside)
    for act in (run.lock, lambda: run.save(2, {"a": b""})):
        with pytest.raises(RunError, match="checkpoints is not a folder of this run"):
            act()
    assert [path.name for path in outside.iterdir()] == ["step-1"]


def test_a_linked_checkpoints_folder_is_not_read_through(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", 1)
    run.set_best("step-1")
    run.checkpoints_path.rename(tmp_path / "outside")
    run.checkpoints_path.symlink_to(tmp_path / "outside")
    named = [lambda name=name: run.checkpoint(name) for name in (None, "best", "last", "step-1")]
    for read in (run.newest, run.steps, run.list_checkpoints, *named):
        with pytest.raises(RunError, match="checkpoints is not a folder of this run"):
            read()


def test_the_name_of_the_best_is_read_from_a_plain_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(tmp_path / "run", 1)
    best = run.path / "best"
    assert run.best_name() is None
    (tmp_path / "name").write_text("step-1\n")
    for make in (
        lambda: best.symlink_to(tmp_path / "name"),
        lambda: best.symlink_to(tmp_path / "missing"),
        lambda: os.mkfifo(best),
        lambda: best.write_text("step-1" + "\n" * 100),
    ):
        make()
        with pytest.raises(RunError, match="the file naming the best checkpoint is damaged"):
            run.best_name()
        best.unlink()

    def refusing(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(SystemFailure, match="best: Permission denied"):
        run.best_name()


def test_nothing_saved_yet_is_no_failure(tmp_path: Path) -> None:
    assert run_with(tmp_path / "run").newest() == (None, [])


def test_overwrite_moves_the_old_run_aside(tmp_path: Path) -> None:
    for number in (1, 2):
        run = run_with(tmp_path / "run", number)
        assert run.move_aside() == tmp_path / f"run.old-{number}"
        assert not run.path.exists()
        assert RunFolder(tmp_path / f"run.old-{number}").checkpoint()[0].step == number
