"""Runs commands of attnkit in processes forked after all imports, and sends them signals.

A line of JSON a request on standard input (``TrainRequest``), a line of JSON an answer (``Answer``) on standard output.
It has run no parallel code itself, so that a forked child has all it needs.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from served import ending, import_everything

LIMIT = 120.0
"""Seconds that a command may take at most."""
GRACE = 10.0
"""Seconds that what a command has started may outlive it."""


@dataclass(frozen=True)
class Request:
    """A command, and what is sent to it when."""

    argv: list[str]
    """The command line, without the program."""
    signals: list[tuple[float, int]] = field(default_factory=list)
    """Seconds after the start (or after ``when`` has come about), and the number of a signal; ascending."""
    when: str = ""
    """A file whose being there starts the clock of the signals, or ``child``: the command has started a process."""
    at_once: int | None = None
    """Characters of text of which a vocabulary is made in the command's own process."""
    sleep_in: tuple[str, str] | None = None
    """Module and name of a function that sleeps before it does anything, having made the file ``asleep``."""
    asleep: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    """Changed variables."""


@dataclass(frozen=True)
class Answer:
    """How it ended."""

    code: int
    """The exit code, or a signal's number below zero."""
    err: str
    seconds: float
    alive: bool
    """Whether something that it had started went on without it."""


def attempt(request: Request) -> Answer:
    """Run a command in a child, send the signals, and tell how it ended."""
    reader, writer = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if not child:
        os.close(reader)
        run(request, writer)
    os.close(writer)
    waiting, started, err = list(request.signals), None if request.when else began, b""
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        now = time.monotonic()
        if found:
            break
        if started is None and come_about(request.when, child):
            started = now
        while waiting and started is not None and now >= started + waiting[0][0]:
            os.kill(child, waiting.pop(0)[1])
        if now > began + LIMIT:
            os.kill(child, signal.SIGKILL)
        pause = 0.002 if started is None or not waiting else min(0.002, max(0.0, started + waiting[0][0] - now))
        if select.select([reader], [], [], pause)[0]:
            block = os.read(reader, 1 << 16)
            err += block
            time.sleep(0 if block else pause)
    seconds = time.monotonic() - began
    alive = outlived(child)
    while block := os.read(reader, 1 << 16):
        err += block
    os.close(reader)
    return Answer(os.waitstatus_to_exitcode(status), err.decode(), seconds, alive)


def come_about(event: str, child: int) -> bool:
    """Return whether what the signals wait for has happened."""
    if event != "child":
        return Path(event).exists()
    with suppress(OSError):
        return bool(Path(f"/proc/{child}/task/{child}/children").read_text())
    return False


def outlived(group: int) -> bool:
    """Return whether a process of the command's group lives on without it, and kill it then."""
    until = time.monotonic() + GRACE
    while time.monotonic() < until:
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return False
        time.sleep(0.002)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    return True


def run(request: Request, err: int) -> None:
    """Be the child: run the command as a process of its own would, and end."""
    with ending():
        os.setpgid(0, 0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere, 1)
        os.dup2(err, 2)
        os.close(err)
        os.environ.update(request.environment)
        if request.at_once is not None:
            importlib.import_module("attnkit.text.vocabulary").AT_ONCE = request.at_once  # type: ignore[attr-defined]
        if request.sleep_in is not None:
            fall_asleep(*request.sleep_in, Path(request.asleep))
        sys.argv = ["attnkit", *request.argv]
        from attnkit.cli.main import main

        main()


def fall_asleep(module: str, name: str, note: Path) -> None:
    """Let a function sleep until a signal comes before it does what it does.

    It sleeps in naps: a signal that comes just before the system's own sleep is only seen at the end of it.
    """
    found: Any = importlib.import_module(module)
    awake = getattr(found, name)

    def sleepy(*arguments: Any, **options: Any) -> Any:
        note.touch()
        until = time.monotonic() + LIMIT
        while time.monotonic() < until:
            time.sleep(0.01)
        return awake(*arguments, **options)

    setattr(found, name, sleepy)


def main() -> None:
    """Import everything, then serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import_everything()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # in children too: before the program is there, nothing happens
    for line in sys.stdin:
        print(json.dumps(asdict(attempt(Request(**json.loads(line))))), file=answers, flush=True)


if __name__ == "__main__":
    main()
