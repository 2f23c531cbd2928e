"""The test side of ``signal_server.py``, and what runs are compared by that were asked to stop."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RUN: dict[str, Any] = {
    "limits__max_steps": 10,
    "evaluation": {"every_steps": 4, "n_samples": 0},
    "checkpoints": {"save_every": 3, "keep_last": 2, "keep_best": 1, "average": 2},
    "model__dropout": 0.3,
}
"""A few steps of each kind of save, and an average."""
CLOCKED = ("lock", "timings.jsonl")
"""Files of a run that tell of processes and clocks, and of nothing else."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: see ``signal_server.Answer``."""

    code: int
    err: str
    seconds: float
    alive: bool


@dataclass
class Signals:
    """Runs ``attnkit`` in children of one process that has imported everything, and sends them signals."""

    process: subprocess.Popen[bytes] = field(repr=False)

    def begin(self, *argv: str | Path, **request: Any) -> None:
        """Start a command; the keywords are the fields of ``signal_server.TrainRequest``."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"argv": list(map(str, argv)), **request}).encode() + b"\n")
        self.process.stdin.flush()

    def end(self) -> Ended:
        """Wait for what was begun last."""
        assert self.process.stdout is not None
        return Ended(**json.loads(self.process.stdout.readline()))

    def __call__(self, *argv: str | Path, **request: Any) -> Ended:
        """Run a command to its end."""
        self.begin(*argv, **request)
        return self.end()

    def close(self) -> None:
        """End the process."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()
        self.process.wait(timeout=60)


@functools.cache
def signals() -> Signals:
    """Return the one that all tests share, which ends with them."""
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("signal_server.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )
    found = Signals(process)
    atexit.register(found.close)
    return found


def outcome(run: Path) -> dict[str, bytes]:
    """Return what no stop may change: every file but for clocks and processes.

    A checkpoint from before the last step tells in its ``state.json`` that there was a stop.
    """
    last = max(int(path.name.removeprefix("step-")) for path in (run / "checkpoints").iterdir())
    found = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        stopped = path.name == "state.json" and "step-" in name and f"step-{last}/" not in name
        if path.is_file() and name not in CLOCKED and not stopped:
            found[name] = _without_clock(path.name, path.read_bytes())
    return found


def _without_clock(name: str, data: bytes) -> bytes:
    if name == "README.md":
        return re.sub(rb"[\d.]+ minutes", b"", data)
    if name not in ("state.json", "manifest.json"):
        return data
    tree = json.loads(data)
    tree.get("counters", {}).pop("minutes", None)
    tree.get("files", {}).pop("state.json", None)
    tree.pop("sha256", None)
    return json.dumps(tree, sort_keys=True).encode()
