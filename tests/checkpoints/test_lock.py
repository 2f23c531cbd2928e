"""One process at a time, and none after death."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from attnkit.checkpoints.run_folder import RunFolder, is_run
from attnkit.errors import SystemFailure

HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from attnkit.checkpoints.run_folder import RunFolder
lock = RunFolder(Path(sys.argv[1])).lock()
child = subprocess.Popen(["sleep", "60"], close_fds=False)
here, there = os.pipe()
forked = os.fork()
if forked == 0:
    os.write(there, b"!")
    time.sleep(60)
os.read(here, 1)
print(child.pid, forked, flush=True)
time.sleep(60)
"""


def test_a_second_process_is_refused_by_name_and_a_kill_frees_the_lock_though_children_live(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    owner = subprocess.Popen([sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    children = [int(pid) for pid in owner.stdout.readline().split()]
    try:
        for act in (run.lock, run.move_aside):
            with pytest.raises(
                SystemFailure, match=f"in use by process {owner.pid} on {socket.gethostname()}"
            ) as caught:
                act()
            assert caught.value.exit_code == 5
            assert f"kill {owner.pid}" in (caught.value.help or "")
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        for child in children:
            os.kill(child, 0)
        with run.lock():
            assert is_run(run.path)
    finally:
        owner.stdout.close()
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_a_lock_is_refused_within_the_same_process_and_free_after_release(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    lock = run.lock()
    with pytest.raises(SystemFailure, match=f"in use by process {os.getpid()}"):
        run.lock()
    lock.release()
    lock.release()
    run.lock().release()


def test_a_forked_child_neither_holds_nor_frees_the_lock(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    lock = run.lock()
    child = os.fork()
    if child == 0:
        gc.disable()  # see test_saving.py
        lock.release()
        os._exit(0 if not Path(f"/proc/self/fd/{lock.descriptor}").exists() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(SystemFailure, match="in use"):
        run.lock()
    lock.release()


def test_what_a_forked_child_locks_is_not_freed_by_the_lock_it_left_behind(tmp_path: Path) -> None:
    first = RunFolder(tmp_path / "first").lock()
    child = os.fork()
    if child == 0:
        gc.disable()  # see test_saving.py
        held = [os.open(os.devnull, os.O_RDONLY)]
        while held[-1] < first.descriptor:  # lower numbers that are free would be taken first
            held.append(os.open(os.devnull, os.O_RDONLY))
        os.close(held[-1])
        second = RunFolder(tmp_path / "second").lock()
        same_number = second.descriptor == first.descriptor
        first.release()
        os._exit(0 if same_number and Path(f"/proc/self/fd/{second.descriptor}").exists() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    first.release()


def test_locking_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    run.lock().release()
    for folder in (run.path, run.checkpoints_path, run.data_path):
        folder.mkdir(exist_ok=True)
        (folder / ".tmp-x-1").mkdir()  # of process 1, which lives: under the lock every temporary is stale
    run.lock().release()
    assert [path for path in run.path.rglob("*") if path.name.startswith(".tmp")] == []
