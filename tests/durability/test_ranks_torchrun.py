"""Two processes under torchrun train as one does, stop together, continue together, and fail with one voice.

Whatever comes between, their run ends with the bytes of two processes that nothing befell.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from rank_server import start

N_STEPS, STOP_AT, KILL_AT = 10, 2, 5
# Adam would turn rounding into steps where the gradient is zero (of keys' biases) if eps did not drown it.
CHANGES = {"limits__max_steps": N_STEPS, "model__dropout": 0.0, "optimization__eps": 1e-3, "checkpoints__save_every": 2}

# After a step, rank 1 alone sends SIGTERM: to itself, or to torchrun as well, which hands it on to all.
STOPPING = """
import os, signal, sys, time
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.gradient_session import GradientSession
whom, last, folder = sys.argv.pop(1), int(sys.argv.pop(1)), sys.argv.pop(1)
keep, save = GradientSession.log_and_save, RunFolder.save
def stop_after_last(self, record, writer):
    keep(self, record, writer)
    if self.ranks.rank == 1 and self.step == last:
        os.kill(os.getpid(), signal.SIGTERM)
        if whom != "itself":
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(2)
def note_and_save(self, step, contents):
    open(f"{folder}/saved", "a").write(f"{os.environ['RANK']}:{step} ")
    return save(self, step, contents)
GradientSession.log_and_save, RunFolder.save = stop_after_last, note_and_save
from attnkit.cli.main import main
try:
    main()
except SystemExit as ended:
    open(f"{folder}/code-{os.environ['RANK']}", "w").write(str(ended.code))
"""

# The first attempt loses rank 1 to the system; where three are to fail, the second finds the disk full and the third
# meets a bug on rank 1.
FAILING = f"""
import os, signal, sys
from attnkit.checkpoints.run_folder import RunFolder
from attnkit.engine.gradient_session import GradientSession
from attnkit.engine import seq2seq as likelihood
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
n_failures = int(sys.argv.pop(1))
save, loss, keep = RunFolder.save, likelihood.linear_cross_entropy, GradientSession.log_and_save
def save_once(self, step, contents):
    if step > 6:
        raise OverflowError("no room")
    return save(self, step, contents)
def lose(*arguments):
    raise ZeroDivisionError("that was too much")
def end(self, record, writer):
    keep(self, record, writer)
    if self.step == {KILL_AT}:
        os.kill(os.getpid(), signal.SIGKILL)
if attempt == "0" and rank == "1":
    GradientSession.log_and_save = end
if attempt == "1" and n_failures == 3:
    RunFolder.save = save_once
if attempt == "2" and rank == "1" and n_failures == 3:
    likelihood.linear_cross_entropy = lose
from attnkit.cli.main import main
main()
"""

FULL = """
import errno
from attnkit.errors import system_failure
from attnkit.checkpoints.run_folder import RunFolder
def save(self, step, contents):
    raise system_failure("write", self.path, OSError(errno.ENOSPC, "No space left on device"))
RunFolder.save = save
from attnkit.cli.main import main
main()
"""

# In the first attempt one rank ends so many seconds after it has imported everything.
DYING = """
import os, signal, sys, threading, time
rank, seconds = sys.argv.pop(1), float(sys.argv.pop(1))
import attnkit.cli.train, attnkit.tasks.translation.task
def end():
    time.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and os.environ["RANK"] == rank:
    threading.Thread(target=end, daemon=True).start()
from attnkit.cli.main import main
main()
"""


def torchrun(
    program: list[str], arguments: list[str], folder: Path, restarts: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run two processes; with ``restarts``, what they print goes to files: see ``said``."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--max-restarts", str(restarts)]
    command += ["--redirects", "3", "--log-dir", str(folder / "logs")] if restarts else []
    environment = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(folder / "error.json")}
    return subprocess.run(
        [*command, *program, *arguments], capture_output=True, text=True, check=False, env=environment, timeout=600
    )


def said(folder: Path, attempt: int, rank: int) -> list[str]:
    """Return the lines that one process of an attempt left on stderr."""
    (log,) = (folder / "logs").glob(f"*/attempt_{attempt}/{rank}/stderr.log")
    return log.read_text().splitlines()


def status(run: Path) -> Any:
    return json.loads((run / "status.json").read_text())


def outcome(run: Path) -> dict[str, bytes]:
    """Return the bytes of all that must not depend on interruptions."""
    names = ("model.safetensors", "optimizer.safetensors")
    found = {name: (run / f"checkpoints/step-{N_STEPS}" / name).read_bytes() for name in names}
    return found | {name: (run / name).read_bytes() for name in ("metrics.jsonl", "best")}


def call_train(folder: Path) -> None:
    """Be a rank that nothing befalls."""
    from attnkit.cli.main import main

    sys.argv = ["attnkit", *json.loads((folder / "arguments.json").read_text())]
    main()


@pytest.fixture(scope="module")
def whole(workshop: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes make that nothing befalls."""
    folder = tmp_path_factory.mktemp("whole")
    arguments = workshop.arguments("transformer", folder / "run", **CHANGES)
    (folder / "arguments.json").write_text(json.dumps(arguments))
    group = start(call_train, 2, folder)
    assert group.codes() == [0, 0], group.said(0)
    return folder / "run"


def stop(workshop: Any, folder: Path, whom: str, last: int) -> None:
    """Train until a signal comes after step ``last``; check how the processes end."""
    (folder / "stopping.py").write_text(STOPPING)
    program = [str(folder / "stopping.py"), whom, str(last), str(folder)]
    stopped = torchrun(program, workshop.arguments("transformer", folder / "run", **CHANGES), folder)
    codes = [folder / f"code-{rank}" for rank in (0, 1)]
    assert [path.read_text() for path in codes if path.exists()] == ["0", "0"], stopped.stderr
    assert stopped.stdout == ""
    assert (stopped.returncode == 0) == (whom == "itself")  # torchrun itself ends with 1 when it gets a signal
    assert "error: " not in stopped.stderr
    assert (status(folder / "run")["state"], status(folder / "run")["step"]) == ("stopped", last + 1)
    steps = [*range(2, last + 1, 2), last + 1]
    assert (folder / "saved").read_text().split() == [f"0:{step}" for step in steps]


def go_on(workshop: Any, folder: Path, step: int) -> None:
    """Train to the end from a step; there are no traces of what came before."""
    finished = torchrun(["-m", "attnkit"], workshop.arguments("transformer", folder / "run", **CHANGES), folder)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count(f"done: {N_STEPS} steps") == 1
    assert finished.stderr.count(f"resuming from step {step}") == 1


@pytest.mark.slow
def test_a_signal_to_one_rank_stops_both_and_the_same_command_goes_on(
    workshop: Any, whole: Path, tmp_path: Path
) -> None:
    stop(workshop, tmp_path, "itself", STOP_AT)
    go_on(workshop, tmp_path, STOP_AT + 1)
    assert outcome(tmp_path / "run") == outcome(whole)


@pytest.mark.slow
def test_a_signal_to_torchrun_stops_both(workshop: Any, whole: Path, tmp_path: Path) -> None:
    stop(workshop, tmp_path, "torchrun", STOP_AT)
    go_on(workshop, tmp_path, STOP_AT + 1)
    assert outcome(tmp_path / "run") == outcome(whole)


def test_two_processes_train_what_one_does(workshop: Any, whole: Path, tmp_path: Path) -> None:
    workshop.train(workshop.configure(**CHANGES), tmp_path / "alone")
    path = f"checkpoints/step-{N_STEPS}/model.safetensors"
    expected, found = (safetensors.torch.load_file(run / path) for run in (tmp_path / "alone", whole))
    for name, tensor in expected.items():
        assert float((found[name] - tensor).norm() / tensor.norm()) <= 1e-5, name


@pytest.mark.slow
def test_two_that_share_the_weights_train_what_one_does_and_outlive_a_death(workshop: Any, tmp_path: Path) -> None:
    """A rank that dies between two steps breaks the exchange of the other; they resume from the last save."""
    workshop.train(workshop.configure(**CHANGES), tmp_path / "alone")
    (tmp_path / "failing.py").write_text(FAILING)
    arguments = workshop.arguments("transformer", tmp_path / "run", **CHANGES, fsdp=True)
    done = torchrun([str(tmp_path / "failing.py"), "1"], arguments, tmp_path, restarts=1)
    assert done.returncode == 0, done.stderr
    assert said(tmp_path, 0, 0)[-2].startswith("error: another process of this run ended")
    assert any(line.startswith("resuming from step 4") for line in said(tmp_path, 1, 0))
    path = f"checkpoints/step-{N_STEPS}/model.safetensors"
    expected, found = (safetensors.torch.load_file(tmp_path / run / path) for run in ("alone", "run"))
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert float((found[name] - tensor).norm() / tensor.norm()) <= 1e-5, name
    # The same command by one process that holds all: whatever it is limited to, it continues.
    arguments = workshop.arguments("transformer", tmp_path / "run", **{**CHANGES, "limits__max_steps": N_STEPS + 1})
    alone = subprocess.run([sys.executable, "-m", "attnkit", *arguments], capture_output=True, text=True, check=False)
    assert alone.returncode == 0 and f"resuming from step {N_STEPS}" in alone.stderr, alone.stderr


@pytest.mark.slow
def test_a_failure_that_would_repeat_is_told_once_and_not_retried(workshop: Any, tmp_path: Path) -> None:
    """Rank 0 alone looks through the text, while rank 1 waits for it."""
    bad = tmp_path / "bad.src"
    bad.write_bytes(workshop.file("train.src").read_bytes().replace(b"1", b"\xff"))
    arguments = workshop.arguments("transformer", tmp_path / "run")
    arguments[arguments.index("--src") + 1] = str(bad)
    failed = torchrun(["-m", "attnkit"], arguments, tmp_path, restarts=1)

    lines = [line for line in said(tmp_path, 0, 0) if not line.startswith(str(bad))]
    assert lines[0] == "checking the text"
    assert [line.split(" ")[0] for line in lines[1:]] == ["error:", "", "help:"]
    assert "not UTF-8" in lines[1]
    assert said(tmp_path, 0, 1) == []
    assert {*said(tmp_path, 1, 0), *said(tmp_path, 1, 1)} <= {"interrupted"}  # by torchrun, once the other has ended
    codes = set(re.findall(r"exitcode +: (-?\d+)", failed.stderr))
    assert failed.returncode != 0 and {"3"} <= codes <= {"3", "143", "-15"}, failed.stderr  # torchrun was the quicker
    assert (status(tmp_path / "run")["state"], status(tmp_path / "run")["exit_code"]) == ("failed", 3)


@pytest.mark.slow
def test_a_full_disk_is_told_once_and_not_retried(workshop: Any, tmp_path: Path) -> None:
    (tmp_path / "full.py").write_text(FULL)
    arguments = workshop.arguments("transformer", tmp_path / "run", **CHANGES)
    failed = torchrun([str(tmp_path / "full.py")], arguments, tmp_path, restarts=2)
    assert failed.returncode != 0
    assert said(tmp_path, 0, 0)[-2].startswith("error: cannot write ")
    for attempt in (1, 2):
        assert {*said(tmp_path, attempt, 0), *said(tmp_path, attempt, 1)} <= {"interrupted"}
    assert status(tmp_path / "run")["exit_code"] == 5


@pytest.mark.slow
@pytest.mark.parametrize("n_failures", [1, 3])
def test_other_failures_are_retried_and_leave_no_trace(
    workshop: Any, whole: Path, tmp_path: Path, n_failures: int
) -> None:
    run = tmp_path / "run"
    workshop.train(workshop.configure(limits__max_steps=1), run)
    arguments = workshop.arguments("transformer", run, **CHANGES)
    (tmp_path / "failing.py").write_text(FAILING)
    program = [str(tmp_path / "failing.py"), str(n_failures)]
    done = torchrun(program, [*arguments, "--overwrite"], tmp_path, restarts=n_failures)
    assert done.returncode == 0, done.stderr

    # The killed rank said nothing; the next attempt continues from the last save, and so on.
    assert said(tmp_path, 0, 1) == []
    assert any(line.startswith("resuming from step 4") for line in said(tmp_path, 1, 0))
    if n_failures == 3:
        bug, gone = said(tmp_path, 1, 0), said(tmp_path, 2, 1)
        assert bug[-2].endswith("OverflowError: no room")
        assert said(tmp_path, 1, 1) == []
        # Nobody knew of what befell rank 1: it tells of it itself, and the broken connection ends rank 0.
        assert gone[0].endswith("ZeroDivisionError: that was too much") and len(gone) == 2
        assert said(tmp_path, 2, 0)[-2].startswith("error: another process of this run ended")
        assert any(line.startswith("resuming from step 6") for line in said(tmp_path, 3, 0))
    assert status(run)["state"] == "finished"
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run", "run.old-1"]
    assert outcome(run) == outcome(whole)


@pytest.mark.slow
def test_4_killed_ranks_are_recovered_from_on_the_first_restart(workshop: Any, whole: Path, tmp_path: Path) -> None:
    """At random moments from the end of the imports to the end of the run; what comes too late is drawn again."""
    (tmp_path / "dying.py").write_text(DYING)
    chance, latest, kills, told = random.Random(1), 4.0, 0, []
    for trial in range(60):
        folder, seconds = tmp_path / str(trial), chance.uniform(0, latest)
        program = [str(tmp_path / "dying.py"), str(trial % 2), str(seconds)]
        began = time.monotonic()
        done = torchrun(program, workshop.arguments("transformer", folder / "run", **CHANGES), folder, restarts=1)
        assert done.returncode == 0, (trial, seconds, done.stderr)
        assert outcome(folder / "run") == outcome(whole), (trial, seconds)
        assert status(folder / "run")["state"] == "finished"
        if list((folder / "logs").glob("*/attempt_1")):
            kills += 1
            told.append(round(time.monotonic() - began, 1))
        else:
            latest = min(latest, seconds)
        if kills == 4:
            break
    print(f"{kills} kills within {latest:.1f} s; seconds each: {told}")
    assert kills == 4
