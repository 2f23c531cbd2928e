"""atomic.py: all or nothing, failures named, outputs that appear only on success."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from attnkit.errors import SystemFailure
from attnkit.io import atomic


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_whole_file_replaces_the_old_one(tmp_path: Path) -> None:
    goal = tmp_path / "a.txt"
    atomic.write_text(goal, "old\n")
    atomic.write_bytes(goal, memoryview(b"new\x00"))
    assert goal.read_bytes() == b"new\x00"
    assert names(tmp_path) == ["a.txt"]


def test_files_have_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        atomic.write_text(tmp_path / "a", "x")
        with atomic.atomic_dir(tmp_path / "b") as folder:
            atomic.write_new_file(folder / "c", b"x")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "b", "b/c")]
    assert modes == [0o640, 0o750, 0o640]


def test_a_missing_folder_is_named_with_its_cause_and_a_next_step(tmp_path: Path) -> None:
    goal = tmp_path / "nowhere" / "a.txt"
    with pytest.raises(SystemFailure, match=f"cannot write {goal}: No such file or directory") as caught:
        atomic.write_text(goal, "x")
    assert caught.value.exit_code == 5
    assert caught.value.help


@pytest.mark.parametrize("call", ["write", "fsync", "close", "replace"])
def test_a_failing_write_keeps_the_old_file_and_names_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    goal = tmp_path / "a.txt"
    atomic.write_text(goal, "old")
    real = os.close

    def fail(*args: object) -> None:
        if call == "close":
            real(args[0])  # type: ignore[arg-type]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path if call == "replace" else os, call, fail)
        with pytest.raises(SystemFailure, match="No space left on device"):
            atomic.write_text(goal, "new")
    assert goal.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    goal = tmp_path / "step-1"
    with pytest.raises(KeyboardInterrupt), atomic.atomic_dir(goal) as folder:
        atomic.write_new_file(folder / "a", b"1")
        raise KeyboardInterrupt
    assert names(tmp_path) == []
    with atomic.atomic_dir(goal) as folder:
        (folder / "sub").mkdir()
        with atomic.create_exclusive(folder / "sub" / "big") as stream:
            stream.write(b"12")
        assert not goal.exists()
    assert (goal / "sub" / "big").read_bytes() == b"12"
    assert names(tmp_path) == ["step-1"]


def test_everything_in_a_new_folder_is_synced_before_the_rename_and_the_parent_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    real_fsync, real_replace = os.fsync, Path.replace

    def fsync(descriptor: int) -> None:
        events.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real_fsync(descriptor)

    def replace(self: Path, goal: Path) -> Path:
        events.append("rename")
        return real_replace(self, goal)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    with atomic.atomic_dir(tmp_path / "goal") as folder:
        (folder / "plain").write_bytes(b"x")
    assert events == ["plain", folder.name, "rename", tmp_path.name]


def test_the_next_writer_removes_what_a_dead_one_left_and_leaves_a_living_one_alone(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f".tmp-out-{dead.pid}").mkdir()
    (tmp_path / f".tmp-out-{dead.pid}" / "a").touch()
    (tmp_path / f".tmp-out-{os.getpid()}").touch()
    (tmp_path / f".tmp-out-{os.getppid()}").touch()
    (tmp_path / f".tmp-other-{dead.pid}").touch()
    atomic.write_text(tmp_path / "out", "x")
    assert names(tmp_path) == sorted([f".tmp-out-{os.getppid()}", f".tmp-other-{dead.pid}", "out"])
    atomic.remove_stale_temporaries(tmp_path)
    assert names(tmp_path) == ["out"]


def test_a_planted_link_leads_no_write_elsewhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    run = tmp_path / "run"
    run.mkdir()
    for name in ("log", "card", f".tmp-card-{os.getpid()}"):
        (run / name).symlink_to(outside)
    with pytest.raises(SystemFailure, match=r"cannot write .*log"):
        atomic.append_text(run / "log", "x")
    with pytest.raises(SystemFailure, match=r"cannot truncate .*log"):
        atomic.truncate(run / "log", 0)
    atomic.write_text(run / "card", "x")
    atomic.remove_tree(run / "log")
    assert outside.read_text() == "mine"
    assert not (run / "card").is_symlink()


def test_append_and_truncate(tmp_path: Path) -> None:
    log = tmp_path / "log"
    atomic.append_text(log, "añb\n")
    atomic.append_text(log, "c\n")
    atomic.sync(log)
    assert log.read_text() == "añb\nc\n"
    atomic.truncate(log, 99)
    assert log.stat().st_size == 7
    atomic.truncate(log, 5)
    assert log.read_text() == "añb\n"


def test_an_append_that_fails_half_way_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    atomic.append_text(log, "first\n")
    real, calls = os.write, []

    def write(descriptor: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data[:3])

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(SystemFailure, match="No space left"):
        atomic.append_text(log, "second\n")
    assert log.read_text() == "first\n"


def test_output_appears_only_when_the_block_ends_well(tmp_path: Path) -> None:
    goal = tmp_path / "out.txt"
    with pytest.raises(RuntimeError), atomic.open_output(goal) as out:
        out.write("half\n")
        raise RuntimeError
    assert names(tmp_path) == []
    with atomic.open_output(goal) as out:
        out.write("ä\u2028b\r\n")
        assert not goal.exists()
    assert goal.read_bytes() == "ä\u2028b\r\n".encode()


def test_output_through_a_link_replaces_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with atomic.open_output(tmp_path / "link") as out:
        out.write("x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "x"


def test_output_refuses_a_folder_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SystemFailure, match="Is a directory"):
        atomic.open_output(tmp_path)


def test_a_full_device_is_named() -> None:
    with pytest.raises(SystemFailure, match="cannot write /dev/full: No space left on device"):  # noqa: SIM117
        with atomic.open_output(Path("/dev/full")) as out:
            out.write("x")


def test_an_error_of_another_file_inside_the_block_keeps_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"), atomic.open_output(tmp_path / "out"):
        (tmp_path / "missing").read_text()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no shared memory file system here")
def test_a_file_in_shared_memory_is_a_file() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for text in ("first\n", "second\n"):
            with atomic.open_output(Path(folder) / "out") as out:
                out.write(text)
            assert (Path(folder) / "out").read_text() == text


def test_a_pipe_is_written_straight(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    with atomic.open_output(pipe) as out:
        out.write("through\n")
    reader.join()
    assert got == ["through\n"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


STDOUT = """
import sys
from pathlib import Path
from attnkit.io import atomic
print("first")
with atomic.open_output(Path(sys.argv[1]) if sys.argv[1:] else None) as out:
    out.write("s\\u00e9cond\\n")
print("third")
"""


@pytest.mark.parametrize("arguments", [[], ["/dev/stdout"]])
def test_standard_output_is_utf8_in_any_locale_and_keeps_the_order(tmp_path: Path, arguments: list[str]) -> None:
    goal = tmp_path / "out"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUNBUFFERED": "1"}
    with goal.open("ab") as stream:  # a plain file held open, as `>> out` does
        subprocess.run([sys.executable, "-c", STDOUT, *arguments], stdout=stream, env=environment, check=True)
    assert goal.read_text() == "first\nsécond\nthird\n"


def test_closed_and_full_standard_output_are_named() -> None:
    for redirect, cause in ((">&-", "it is closed"), (">/dev/full", "No space left on device")):
        script = STDOUT.replace('print("first")', "")
        done = subprocess.run(["sh", "-c", f"\"{sys.executable}\" -c '{script}' {redirect}"], stderr=subprocess.PIPE)
        assert f"SystemFailure: cannot write standard output: {cause}" in done.stderr.decode()


def test_move_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    with pytest.raises(SystemFailure, match="cannot move"):
        atomic.move(tmp_path / "a", tmp_path / "b")
    atomic.move(tmp_path / "a", tmp_path / "c")
    assert names(tmp_path) == ["b", "c"]


def test_make_dirs_and_remove_tree(tmp_path: Path) -> None:
    atomic.make_dirs(tmp_path / "a" / "b")
    atomic.make_dirs(tmp_path / "a" / "b")
    (tmp_path / "a" / "b" / "f").touch()
    atomic.remove_tree(tmp_path / "a")
    atomic.remove_tree(tmp_path / "a")
    assert names(tmp_path) == []
    (tmp_path / "f").touch()
    with pytest.raises(SystemFailure, match=r"cannot make the folder .*f"):
        atomic.make_dirs(tmp_path / "f")


def test_big_data_is_written_without_a_copy(tmp_path: Path) -> None:
    import tracemalloc

    data = bytearray(32 << 20)
    tracemalloc.start()
    atomic.write_bytes(tmp_path / "big", data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "big").stat().st_size == len(data)
    assert peak < 1 << 20


def test_names_of_any_length_and_kind(tmp_path: Path) -> None:
    for name in ("x" * 255, "ü" * 127, "a\nb", os.fsdecode(b"\xff")):
        atomic.write_text(tmp_path / name, "x")
    assert len(names(tmp_path)) == 4
