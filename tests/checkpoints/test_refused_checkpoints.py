"""Checkpoints that cannot be used: what is said of them, and what is taken instead."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnkit.checkpoints import checkpoint
from attnkit.checkpoints.checkpoint import open_checkpoint
from attnkit.checkpoints.logs import State, Status
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.errors import RunError, SystemFailure

FILES = ("config.yaml", "tokenizer.json", "model.safetensors", "optimizer.safetensors", "state.json")


def contents(step: int) -> dict[str, bytes]:
    source = random.Random(step)
    sizes = dict(zip(FILES, (300, 2000, 20_000, 9000, 120), strict=True))
    return {name: source.randbytes(size) for name, size in sizes.items()}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "run")
    folder.lock().release()
    folder.save(10, contents(10))
    folder.save(20, contents(20))
    return folder


def test_the_warning_names_the_bad_file_and_what_is_wrong(run: RunFolder) -> None:
    path = run.checkpoints_path / "step-20" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert run.newest()[1] == [
        f"model.safetensors of checkpoint step-20 cannot be used: it has 19999 bytes, the manifest says 20000 ({path})"
    ]


def test_every_bit_of_the_manifest_counts(run: RunFolder) -> None:
    raw = (run.checkpoints_path / "step-20" / "manifest.json").read_bytes()
    assert checkpoint.parse(raw).render() == raw
    for place in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[place] ^= 1 << bit
            with pytest.raises(ValueError, match=r"^it(s| is| has| does| was)"):
                checkpoint.parse(bytes(changed))


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))))
def test_any_bytes_are_no_manifest(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a valid manifest"):
        checkpoint.parse(raw)


def test_absurd_manifests_are_refused(run: RunFolder) -> None:
    path = run.checkpoints_path / "step-20" / "manifest.json"
    for raw in (b"[" * 100_000, b"1" * 100_000, b'{"files":' * 5000, b"\xff" * 99, b" " * (2 << 20)):
        path.write_bytes(raw)
        with pytest.raises(RunError, match=r"manifest\.json of checkpoint step-20 cannot be used"):
            open_checkpoint(path.parent, "step-20")


def test_a_newer_format_is_told_apart_from_damage(run: RunFolder) -> None:
    path = run.checkpoints_path / "step-20" / "manifest.json"
    path.write_bytes(b'{"format": 2, "layout": "new"}')
    with pytest.raises(RunError, match=r"written by a newer version of attnkit \(format 2; this version reads 1\)"):
        open_checkpoint(path.parent, "step-20")


def test_a_whole_checkpoint_under_another_name_is_refused(run: RunFolder) -> None:
    (run.checkpoints_path / "step-20").rename(run.checkpoints_path / "step-30")
    checkpoint, warnings = run.newest()
    assert checkpoint is not None
    assert checkpoint.step == 10
    assert "it belongs to step 20" in warnings[0]


def test_links_pipes_and_devices_are_not_followed(run: RunFolder, tmp_path: Path) -> None:
    path = run.checkpoints_path / "step-20" / "state.json"
    good = tmp_path / "state.json"
    path.rename(good)
    path.symlink_to(good)
    assert "state.json of checkpoint step-20" in run.newest()[1][0]
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in run.newest()[1][0]
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "state.json of checkpoint step-20" in run.newest()[1][0]


def test_when_none_verifies_the_run_is_refused_and_never_begun_anew(run: RunFolder) -> None:
    for step in (10, 20):
        (run.checkpoints_path / f"step-{step}" / "state.json").write_bytes(b"?")
    with pytest.raises(RunError, match=r"no checkpoint can be used: state\.json of checkpoint step-20") as caught:
        run.newest()
    assert caught.value.exit_code == 4
    shutil.rmtree(run.checkpoints_path)
    (run.path / "best").write_text("step-20\n")
    with pytest.raises(RunError, match=r"the checkpoints of .* are missing"):
        run.newest()


@pytest.mark.parametrize(("state", "step", "lost"), [("running", 20, 1), ("stopped", 20, 1), ("running", 0, 0)])
def test_a_status_tells_of_checkpoints_that_are_lost(run: RunFolder, state: State, step: int, lost: bool) -> None:
    """A run that was never evaluated names no best one."""
    shutil.rmtree(run.checkpoints_path)
    run.write_status(Status(state=state, step=step))
    if not lost:
        assert run.newest() == (None, [])
        return
    with pytest.raises(RunError, match=r"the checkpoints of .* are missing"):
        run.newest()


def test_a_change_after_opening_is_seen_when_reading(run: RunFolder) -> None:
    checkpoint, _ = run.newest()
    assert checkpoint is not None
    path = checkpoint.path / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[77] ^= 4
    path.write_bytes(data)
    with pytest.raises(RunError, match=r"model\.safetensors of checkpoint step-20 cannot be used: its checksum"):
        checkpoint.read("model.safetensors")
    with pytest.raises(RunError, match=r"has no weights\.bin"):
        checkpoint.read("weights.bin")


def test_a_cause_that_is_no_damage_does_not_fall_back(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SystemFailure, match=r"cannot read .*manifest\.json: Permission denied"):
        run.newest()


def test_a_damaged_leftover_beyond_the_newest_save_is_dropped_and_never_counts(run: RunFolder) -> None:
    (run.checkpoints_path / "step-20" / "state.json").unlink()
    assert run.newest()[1]
    run.save(15, contents(15))
    assert run.apply_retention(keep_last=2, keep_best=0, metrics={}) == ["step-20"]
    assert run.steps() == [10, 15]
    checkpoint, warnings = run.newest()
    assert checkpoint is not None
    assert (checkpoint.step, warnings) == (15, [])


def test_a_damaged_checkpoint_is_replaced_when_its_step_comes_again(run: RunFolder) -> None:
    (run.checkpoints_path / "step-20" / "state.json").unlink()
    run.save(20, contents(20))
    checkpoint, warnings = run.newest()
    assert checkpoint is not None
    assert (checkpoint.step, warnings) == (20, [])
