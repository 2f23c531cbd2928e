"""Two processes under torchrun train as one does, stop together, go on together, and fail with one voice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import safetensors.torch

# After a step, rank 1 alone sends SIGTERM: to itself, or to torchrun as well, which hands it on to all.
STOPPING = """
import os, signal, sys, time
from attnkit.tasks import keeping
whom, last, folder = sys.argv.pop(1), int(sys.argv.pop(1)), sys.argv.pop(1)
keep = keeping.Keeper.keep
def stop_after_last(self, record, state):
    keep(self, record, state)
    if self.ranks.rank == 1 and state.step == last:
        os.kill(os.getpid(), signal.SIGTERM)
        if whom != "itself":
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(2)
keeping.Keeper.keep = stop_after_last
from attnkit.cli import main
try:
    main()
except SystemExit as ended:
    open(f"{folder}/code-{os.environ['RANK']}", "w").write(str(ended.code))
"""

# The first attempt finds the disk full at its second checkpoint, the next one loses rank 1 to a lack of memory.
FAILING = """
import errno, os
from attnkit import files
from attnkit.runs.folder import RunFolder
from attnkit.tasks import translation
attempt, rank = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["RANK"]
save, loss = RunFolder.save, translation.linear_cross_entropy
def save_once(self, step, contents):
    if step > 2:
        raise files.failure("write", self.path, OSError(errno.ENOSPC, "No space left on device"))
    return save(self, step, contents)
def lose(*arguments):
    raise MemoryError("no memory for this")
if attempt == "0":
    RunFolder.save = save_once
if attempt == "1" and rank == "1":
    translation.linear_cross_entropy = lose
from attnkit.cli import main
main()
"""


def torchrun(
    program: list[str], arguments: list[str], folder: Path, restarts: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run two processes; with ``restarts``, what they print goes to files: see ``said``."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "0"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--max-restarts", str(restarts)]
    command += ["--redirects", "3", "--log-dir", str(folder / "logs")] if restarts else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCHELASTIC_ERROR_FILE": str(folder / "error.json")}
    return subprocess.run(
        [*command, *program, *arguments], capture_output=True, text=True, check=False, env=environment, timeout=600
    )


def said(folder: Path, attempt: int, rank: int) -> list[str]:
    """Return the lines that one process of an attempt left on stderr."""
    (log,) = (folder / "logs").glob(f"*/attempt_{attempt}/{rank}/stderr.log")
    return log.read_text().splitlines()


def status(run: Path) -> Any:
    return json.loads((run / "status.json").read_text())


def weights(run: Path) -> dict[str, Any]:
    return safetensors.torch.load_file(run / "checkpoints/step-8/model.safetensors")


def test_two_ranks_train_stop_and_go_on(workshop: Any, tmp_path: Path) -> None:
    # Adam would turn rounding into steps where the gradient is zero (of keys' biases) if eps did not drown it.
    changes = {"limits__steps": 8, "model__dropout": 0.0, "optimization__eps": 1e-3}
    run = tmp_path / "run"
    arguments = workshop.arguments("transformer", run, **changes)
    (tmp_path / "stopping.py").write_text(STOPPING)
    for whom, last in ("itself", 2), ("torchrun", 6):
        program = [str(tmp_path / "stopping.py"), whom, str(last), str(tmp_path)]
        stopped = torchrun(program, arguments, tmp_path)
        codes = [tmp_path / f"code-{rank}" for rank in (0, 1)]
        assert [path.read_text() for path in codes if path.exists()] == ["0", "0"], stopped.stderr
        for path in codes:
            path.unlink()
        assert stopped.stdout == ""
        assert (stopped.returncode == 0) == (whom == "itself")  # torchrun itself ends with 1 when it gets a signal
        assert "error: " not in stopped.stderr
        assert (status(run)["state"], status(run)["step"]) == ("stopped", last + 1)
        assert (run / f"checkpoints/step-{last + 1}").is_dir()

    finished = torchrun(["-m", "attnkit"], arguments, tmp_path)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.count("done: 8 steps") == 1
    assert finished.stderr.count("going on from step 7") == 1

    workshop.train(workshop.configure(**changes), tmp_path / "alone")
    expected, found = weights(tmp_path / "alone"), weights(run)
    for name, tensor in expected.items():
        assert float((found[name] - tensor).norm() / tensor.norm()) <= 1e-5, name


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
    assert "no UTF-8" in lines[1]
    assert [said(tmp_path, *process) for process in ((0, 1), (1, 0), (1, 1))] == [[], [], []]
    codes = set(re.findall(r"exitcode +: (-?\d+)", failed.stderr))
    assert failed.returncode != 0 and {"3"} <= codes <= {"3", "-15"}, failed.stderr  # -15: torchrun was the quicker
    assert (status(tmp_path / "run")["state"], status(tmp_path / "run")["exit_code"]) == ("failed", 3)


def test_other_failures_are_retried(workshop: Any, tmp_path: Path) -> None:
    run = tmp_path / "run"
    workshop.train(workshop.configure(limits__steps=1), run)
    arguments = workshop.arguments("transformer", run, limits__steps=6, checkpoints={"save_every": 2})
    (tmp_path / "failing.py").write_text(FAILING)
    done = torchrun([str(tmp_path / "failing.py")], [*arguments, "--overwrite"], tmp_path, restarts=2)
    assert done.returncode == 0, done.stderr

    full, gone = said(tmp_path, 0, 0), said(tmp_path, 1, 1)
    assert full[-2].startswith("error: cannot write ") and full[-1].startswith("help: ")
    assert said(tmp_path, 0, 1) == []
    # Nobody knew of what befell rank 1: it tells of it itself, and the broken connection ends rank 0.
    assert gone[0].endswith("MemoryError: no memory for this") and len(gone) == 2
    assert said(tmp_path, 1, 0)[-2].startswith("error: another process of this run has ended")
    assert any(line.startswith("going on from step 2") for line in said(tmp_path, 2, 0))
    assert status(run)["state"] == "finished"
    assert sorted(path.name for path in tmp_path.glob("run*")) == ["run", "run.old-1"]
