"""Systems side by side: the peers' own environment, workers that take turns (one JSON message a line), result files.

Nothing here imports attnkit or a peer, since it runs under the interpreters of both.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WORK = HERE / ".work"
Message = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that the speed benchmarks share."""
    parser.add_argument("--peers-python", type=Path, help="an interpreter that has what the list of pins names")
    parser.add_argument("--again", action="store_true", help="measure anew what the result file holds already")
    parser.add_argument("--result", type=Path, help="the result file, if not the one under benchmarks/results")


WARM_UP = 5
"""Steps of a training whose time does not count, where the first ones may compile."""


def without_warm_up(times: list[float]) -> float:
    """Return the seconds of all steps, given when the first one began and each ended.

    The first ones are counted as the mean of the others where at least as many of those follow.
    """
    n = len(times) - 1
    first = WARM_UP if n > 2 * WARM_UP else 0
    return (times[-1] - times[first]) * n / (n - first)


def run_timed(command: Iterable[object], log: Path) -> tuple[Any, float]:
    """Run a command that prints JSON, on one thread; return that and the seconds of processor time.

    What it reports is written to ``log``. Raises ``RuntimeError`` if it fails.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("w") as stream:
        process = subprocess.Popen([*map(str, command)], env=environment, stdout=subprocess.PIPE, stderr=stream)
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"it failed: see {log}")
    return json.loads(printed), usage.ru_utime + usage.ru_stime


def peers_python(given: Path | None, pins: str = "peers.txt") -> Path:
    """Return the interpreter of the peers' environment, which is made the first time; each list of pins has its own."""
    if given is not None:
        return given
    home = WORK / ("peers" if pins == "peers.txt" else f"{Path(pins).stem}-peers")
    python = home / "bin" / "python"
    marker = home / "installed.txt"
    wanted = (HERE / pins).read_text()
    if not marker.exists() or marker.read_text() != wanted:
        print(f"installing the peers into {home}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "-r", HERE / pins], check=True)
        marker.write_text(wanted)
    return python


class Worker:
    """A system in a process of its own. It computes when asked and sleeps between turns; its stderr goes to a file."""

    def __init__(self, python: Path | str, script: Path, arguments: list[str], log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        self.log = log
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                [python, script, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**environment, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"},
            )

    def send(self, message: Message) -> None:
        """Give the worker something to do; ``receive`` waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Message:
        """Return the answer to the last message. Raises ``RuntimeError`` with the end of the log if it died."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker died:\n{self.log.read_text()[-3000:]}")
        answer: Message = json.loads(line)
        return answer

    def ask(self, message: Message) -> Message:
        """Return the answer to a message."""
        self.send(message)
        return self.receive()

    def close(self) -> None:
        """Let the worker end: it reads the end of its input."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Conversation:
    """The worker's end: messages come in on stdin, answers go out on what was stdout, and libraries print on stderr."""

    def __init__(self) -> None:
        self._replies = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def listen(self) -> Message | None:
        """Wait for a message; None when there are no more."""
        line = sys.stdin.readline()
        message: Message | None = json.loads(line) if line else None
        return message

    def reply(self, answer: Message) -> None:
        """Answer the last message."""
        self._replies.write(json.dumps(answer) + "\n")
        self._replies.flush()


def machine() -> Message:
    """Return what should be known of the machine next to a figure."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model")]
        model = " / ".join(dict.fromkeys(names))
    return {"cpus": os.cpu_count(), "cpu": model, "load average": os.getloadavg()[0]}


def open_result(path: Path, settings: Message, *, again: bool) -> Message:
    """Return what was measured before with the same settings, or an empty result."""
    settings = json.loads(json.dumps(settings))  # as it will be read: tuples become lists
    if path.exists() and not again:
        found: Message = json.loads(path.read_text())
        if found.get("settings") == settings:
            return found
        sys.exit(f"{path} holds figures of other settings: --again replaces them, --result keeps them apart")
    return {"settings": settings, "machine": machine()}


def save_result(path: Path, result: Message) -> None:
    """Write a result file, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    temporary.replace(path)


def read_rows(path: Path, settings: Message) -> dict[str, Message]:
    """Return the rows that a result file holds, measured with these settings, by name."""
    rows: dict[str, Message] = open_result(path, settings, again=False).get("rows", {})
    return rows


@contextmanager
def update_rows(path: Path, settings: Message) -> Iterator[dict[str, Message]]:
    """Yield the rows of a result file and write them back with what was changed, while other processes wait."""
    with claim(f"result {path.resolve()}", wait=True):
        result = open_result(path, settings, again=False)
        yield result.setdefault("rows", {})
        save_result(path, result)


def forget_rows(path: Path, settings: Message, names: Iterable[str]) -> None:
    """Take rows out of a result file, or all of it if it holds figures of other settings."""
    with claim(f"result {path.resolve()}", wait=True):
        held = json.loads(path.read_text()) if path.exists() else {}
        result = open_result(path, settings, again=held.get("settings") != json.loads(json.dumps(settings)))
        for name in names:
            result.get("rows", {}).pop(name, None)
        save_result(path, result)


@contextmanager
def claim(name: str, *, wait: bool = False) -> Iterator[bool]:
    """Yield whether this process alone works at something of this name; False where another does, unless it waits."""
    path = WORK / "locks" / f"{digest(name)}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            mine = True
        except BlockingIOError:
            mine = False
        yield mine


def digest(value: Any) -> str:
    """Return a short name of anything that JSON can hold, the same whenever it is equal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def median_and_range(values: list[float], digits: int) -> str:
    """Return figures for people: ``12.3 (11.9-12.8)``."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return f"{median:,.{digits}f} ({ordered[0]:,.{digits}f}-{ordered[-1]:,.{digits}f})"
