"""A second process on a run folder is turned away before it loads anything, and a killed one is no owner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import signalled

from attnkit.checkpoints.run_folder import RunFolder
from attnkit.errors import SystemFailure
from attnkit.io.lock import check_not_in_use, take_lock


@pytest.fixture(scope="module")
def signals() -> Any:
    return signalled.signals()


SECOND = """
import sys
from attnkit.cli.main import main
try:
    main()
except SystemExit as ended:
    print(ended.code, "torch" in sys.modules)
"""


def second(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SECOND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_second_process_is_refused_before_torch_is_loaded_and_a_killed_one_owns_nothing(
    workshop: Any, signals: Any, tmp_path: Path
) -> None:
    run, asleep = tmp_path / "run", tmp_path / "asleep"
    arguments = workshop.arguments("rnn", run, **signalled.RUN)
    saving = {"sleep_in": ("attnkit.checkpoints.run_folder", "write_checkpoint"), "asleep": str(asleep)}
    signals.begin(*arguments, **saving, when=str(tmp_path / "refused"), signals=[(0.0, signal.SIGKILL)])
    try:
        until = time.monotonic() + 60
        while not asleep.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        for more in ([], ["--overwrite"]):
            refused = second([*arguments, *more])
            assert refused.stdout == "5 False\n", refused.stderr
            said = refused.stderr.splitlines()
            assert said[0].startswith(f"error: {run} is in use by process ")
            assert f" on {socket.gethostname()} since 20" in said[0]
            owner = int(said[0].split(" is in use by process ")[1].split()[0])
            assert said[1] == f"help: wait for it, stop it (kill {owner}), or choose another folder"
        assert Path(f"/proc/{owner}/cmdline").read_bytes().count(b"signal_server.py") == 1
    finally:
        (tmp_path / "refused").touch()
        killed = signals.end()
    assert killed.code == -signal.SIGKILL
    check_not_in_use(run)
    assert signals(*arguments).code == 0
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run"]


def test_other_ranks_do_not_look(workshop: Any, tmp_path: Path) -> None:
    """They come after the first has taken the folder for all of them; what is refused here is something else."""
    with RunFolder(tmp_path / "run").lock():
        arguments = [*workshop.arguments("rnn", tmp_path / "run"), "--set", "limits.nonsense=1"]
        assert second(arguments, RANK="1", WORLD_SIZE="2").stdout == "2 False\n"
        valid = workshop.arguments("rnn", tmp_path / "run")
        assert second(valid, RANK="0", WORLD_SIZE="2").stdout == "5 False\n"


def test_who_only_looks_keeps_nobody_out(tmp_path: Path) -> None:
    check_not_in_use(tmp_path / "nothing")
    run = RunFolder(tmp_path / "run")
    run.lock().release()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.0002):
            with suppress(SystemFailure):
                check_not_in_use(run.path)

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for _ in range(1000):
            take_lock(run.path).release()
    finally:
        over.set()
        looker.join()
    with run.lock(), pytest.raises(SystemFailure, match=f"in use by process {os.getpid()} on"):
        check_not_in_use(run.path)
