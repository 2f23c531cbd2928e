"""A save is all or nothing, whatever fails or dies in the middle of it."""

from __future__ import annotations

import errno
import gc
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from attnkit.checkpoints.logs import append_record
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.errors import SystemFailure

CALLS = [(os, "open"), (os, "write"), (os, "fsync"), (os, "unlink"), (os, "rmdir")]
CALLS += [(Path, "mkdir"), (Path, "rename"), (Path, "replace"), (Path, "unlink")]
CAUSES = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE)


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count and fail fsyncs, but skip their work: what a process leaves behind does not depend on it."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def contents(step: int) -> dict[str, bytes]:
    return {"model.safetensors": bytes([step]) * 5000, "state.json": b'{"step": %d}' % step, "config.yaml": b"a: 1\n"}


def prepared(path: Path) -> RunFolder:
    run = RunFolder(path)
    run.lock().release()
    append_record(run.metrics_path, {"step": 1})
    run.save(1, contents(1))
    run.save(2, contents(2))
    run.set_best("step-1")
    return run


def save_again(run: RunFolder) -> None:
    """Save a new step, a known step with other content, and drop the oldest: everything a save can do."""
    append_record(run.metrics_path, {"step": 3})
    run.save(3, contents(3))
    run.save(3, contents(4))
    run.apply_retention(keep_last=1, keep_best=0, metrics={})


@contextmanager
def at_call(k: int, then: Callable[[], None], for_good: bool = False) -> Iterator[list[int]]:
    """Run ``then`` instead of the k-th system call that changes the disk, or of all from there on."""
    count = [0]

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            count[0] += 1
            if count[0] == k or (for_good and count[0] > k):
                then()
            return real(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in CALLS:
            patch.setattr(owner, name, wrap(getattr(owner, name)))
        yield count


def newest_content(path: Path) -> bytes:
    checkpoint, warnings = RunFolder(path).newest()
    assert checkpoint is not None
    assert warnings == []
    return checkpoint.read("model.safetensors")


def temporaries(path: Path) -> list[Path]:
    return [found for found in path.rglob("*") if found.name.startswith(".tmp-")]


def n_calls(tmp_path: Path) -> int:
    run = prepared(tmp_path / "counted")
    with at_call(0, lambda: None) as count:
        save_again(run)
    return count[0]


@pytest.mark.parametrize("for_good", [False, True])
def test_any_failing_call_leaves_a_loadable_checkpoint_and_names_path_and_cause(tmp_path: Path, for_good: bool) -> None:
    total = n_calls(tmp_path)
    template = prepared(tmp_path / "template")
    assert total > 40
    for k in range(1, total + 1):
        cause = CAUSES[k % len(CAUSES)]
        run = RunFolder(Path(shutil.copytree(template.path, tmp_path / f"run-{k}")))

        def fail(cause: int = cause) -> None:
            raise OSError(cause, os.strerror(cause))

        with at_call(k, fail, for_good):
            with pytest.raises(SystemFailure, match=re.escape(os.strerror(cause))) as caught:
                save_again(run)
            assert str(run.path) in caught.value.what
            assert caught.value.help
        model = newest_content(run.path)
        assert model in [contents(step)["model.safetensors"] for step in (2, 3, 4)]
        assert RunFolder(run.path).checkpoint("best")[0].step == 1
        assert len(temporaries(run.path)) <= 1
        run.save(9, contents(9))
        assert temporaries(run.path) == []
        assert newest_content(run.path) == contents(9)["model.safetensors"]


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_death_at_any_call_leaves_a_loadable_checkpoint_and_a_free_lock(tmp_path: Path, every: int) -> None:
    template = prepared(tmp_path / "template")
    for k in range(1, n_calls(tmp_path) + 1, every):
        run = RunFolder(Path(shutil.copytree(template.path, tmp_path / f"run-{k}")))
        child = os.fork()
        if child == 0:
            gc.disable()  # garbage of earlier tests may own threads, which are not here: its end would wait for them
            with run.lock(), at_call(k, lambda: os._exit(9)):
                save_again(run)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        model = newest_content(run.path)
        assert model in [contents(step)["model.safetensors"] for step in (2, 3, 4)]
        assert len(temporaries(run.path)) <= 1
        with RunFolder(run.path).lock():
            assert temporaries(run.path) == []


def test_old_checkpoints_go_only_after_the_new_one_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = prepared(tmp_path / "run")
    events: list[str] = []
    fsync, rename, replace = os.fsync, Path.rename, Path.replace

    def on_fsync(descriptor: int) -> None:
        events.append("fsync " + re.sub(r"-\d+$", "", Path(f"/proc/self/fd/{descriptor}").readlink().name))
        fsync(descriptor)

    def on_rename(self: Path, goal: Path) -> Path:
        events.append(f"move {re.sub(r'-[0-9]+$', '', self.name)}")
        return rename(self, goal)

    def on_replace(self: Path, goal: Path) -> Path:
        events.append(f"replace {goal.name}")
        return replace(self, goal)

    monkeypatch.setattr(os, "fsync", on_fsync)
    monkeypatch.setattr(Path, "rename", on_rename)
    monkeypatch.setattr(Path, "replace", on_replace)
    run.set_best("step-2")
    run.save(3, contents(3))
    run.apply_retention(keep_last=2, keep_best=0, metrics={})
    started = events.index("fsync metrics.jsonl")
    placed = events.index("replace step-3")
    dropped = events.index("move step")
    before = events[started:placed]
    for name in ("model.safetensors", "state.json", "config.yaml", "manifest.json", ".tmp-step-3"):
        assert f"fsync {name}" in before
    assert events[placed + 1] == "fsync checkpoints"
    assert dropped > placed + 1
    assert run.steps() == [2, 3]


def test_a_checkpoint_being_replaced_is_found_between_the_two_renames(tmp_path: Path) -> None:
    run = prepared(tmp_path / "run")
    (run.checkpoints_path / "step-2").rename(run.checkpoints_path / "step-2.replaced")
    assert newest_content(run.path) == contents(2)["model.safetensors"]
    assert run.checkpoint("step-2")[0].step == 2
    run.save(2, contents(7))
    assert newest_content(run.path) == contents(7)["model.safetensors"]
    assert sorted(path.name for path in run.checkpoints_path.iterdir()) == ["step-1", "step-2"]


def test_names_that_are_no_plain_file_names_are_misuse(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    for name in ("../x", "a/b", "", ".hidden", "manifest.json", "a\n"):
        with pytest.raises(ValueError, match=r"(?s)."):
            run.save(1, {name: b"x"})
    assert run.steps() == []
