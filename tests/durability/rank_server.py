"""Runs functions of test files as the ranks of a group, in processes forked after all imports: see ``start``.

Run as a script, this file is the server: it takes a line of JSON a group on standard input (``Order``), whose folder
gets ``codes.json`` when all its ranks have ended. As under torchrun, the store where ranks meet is held by a process
that is none of them. The server has run no parallel code itself, so that a forked child has all it needs.
"""

from __future__ import annotations

import functools
import gc
import importlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

LIMIT = 300.0
"""Seconds that a group may take at most: a safety net."""
STOPPED = "stopped"
"""Instead of an exit code: a stopped rank, ended when all others had."""


@dataclass(frozen=True)
class Order:
    """Ranks to start."""

    file: str
    """A test file."""
    function: str
    """What each rank calls, with the folder; the environment tells it which rank it is."""
    world: int
    folder: str


@dataclass(frozen=True)
class Group:
    """Ranks under way, or ended."""

    folder: Path
    server: subprocess.Popen[str]

    def codes(self) -> list[int | str]:
        """Wait for all ranks; return how each ended: its exit code, a signal's number below zero, or ``STOPPED``."""
        answer = self.folder / "codes.json"
        until = time.monotonic() + LIMIT + 60
        while not answer.exists():
            assert self.server.poll() is None and time.monotonic() < until, "the server has ended, or the group has"
            time.sleep(0.005)
        found: list[int | str] = json.loads(answer.read_text())
        return found

    def said(self, rank: int) -> str:
        """Return what a rank printed."""
        return (self.folder / f"rank-{rank}.log").read_text()


def start(function: Callable[[Path], None], world: int, folder: Path) -> Group:
    """Start ``function(folder)`` of a test file in so many processes; the folder, where there is none, is made."""
    folder.mkdir(parents=True, exist_ok=True)
    server = _server()
    assert server.stdin is not None
    order = Order(function.__code__.co_filename, function.__name__, world, str(folder))
    server.stdin.write(json.dumps(asdict(order)) + "\n")
    server.stdin.flush()
    return Group(folder, server)


@functools.cache
def _server() -> subprocess.Popen[str]:
    """Return the one server, which ends when this process does, as nobody can write to it any more."""
    return subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, text=True)


def run(group: Order) -> None:
    """Start the ranks, wait for them, and leave word of how they ended."""
    host, port = start_store()
    ranks = {fork_rank(group, rank, port): rank for rank in range(group.world)}
    codes: dict[int, int | str] = {}
    until = time.monotonic() + LIMIT
    while len(codes) < group.world and time.monotonic() < until:
        for process, rank in ranks.items():
            found, status = os.waitpid(process, os.WNOHANG | os.WUNTRACED) if rank not in codes else (0, 0)
            if found:
                codes[rank] = STOPPED if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    for process, rank in ranks.items():
        if codes.get(rank, STOPPED) == STOPPED:
            os.kill(process, signal.SIGKILL)
    os.kill(host, signal.SIGKILL)
    answer = Path(group.folder) / "codes.part"
    answer.write_text(json.dumps([codes.get(rank, f"still running after {LIMIT} s") for rank in range(group.world)]))
    answer.rename(answer.with_suffix(".json"))


def start_store() -> tuple[int, int]:
    """Start a process that holds the store; return it and the port."""
    read, write = os.pipe()
    host = os.fork()
    if host == 0:
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(write, str(store.port).encode())
        os.close(write)
        while True:
            signal.pause()
    os.close(write)
    with os.fdopen(read) as answer:
        return host, int(answer.read())


def fork_rank(group: Order, rank: int, port: int) -> int:
    """Start a rank; it ends as a Python process of its own would, with the exit code of what it raises."""
    child = os.fork()
    if child:
        return child
    log = os.open(Path(group.folder) / f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ |= {
        **{"RANK": str(rank), "LOCAL_RANK": str(rank)},
        **{"WORLD_SIZE": str(group.world), "LOCAL_WORLD_SIZE": str(group.world)},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"},
    }
    try:
        spec = importlib.util.spec_from_file_location("rank_functions", group.file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        getattr(module, group.function)(Path(group.folder))
    except BaseException as error:
        from attnkit.errors import exit_code

        traceback.print_exc()
        sys.exit(exit_code(error))
    sys.exit(0)


def main() -> None:
    """Import everything, then serve."""
    for name in ("pytest", "attnkit.cli.main", "attnkit.cli.train", "attnkit.tasks.translation.task"):
        importlib.import_module(name)
    import torch

    torch.set_num_threads(1)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            run(Order(**json.loads(line)))
            os._exit(0)


if __name__ == "__main__":
    main()
