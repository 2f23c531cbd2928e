"""Runs commands of attnkit in processes forked after all imports, and kills them where it is asked to.

A line of JSON a request on standard input (``TrainRequest``), a line of JSON an answer (``Answer``) on standard output.
It has run no parallel code itself, so that a forked child has all it needs.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from disk_calls import Call, DiskCalls
from served import ending, import_everything
from writers import Watch

LIMIT = 120.0
"""Seconds that a command may take at most."""


@dataclass(frozen=True)
class Request:
    """A command to run, or a thing to do in a name space of its own (``enter``)."""

    argv: list[str] = field(default_factory=list)
    """The command line, without the program."""
    folder: str = "/"
    """The working folder."""
    environment: dict[str, str] = field(default_factory=dict)
    """Changed variables."""
    kill_after: float | None = None
    """Kill it so many seconds after its start."""
    kill_call: int | None = None
    """Kill it at its n-th call that changes the disk."""
    kill_late: float | None = None
    """Rather so many seconds after that call has begun."""
    fail_call: int | None = None
    """Let its n-th call that changes the disk fail."""
    fail_errno: int = 0
    """How it fails."""
    fail_on: bool = False
    """All later calls fail as well."""
    largest_file: int | None = None
    """Bytes a file may have at most."""
    quick: bool = False
    """Count fsyncs, but skip their work: what a process leaves behind does not depend on it."""
    watch: str | None = None
    """A file where every writer is noted."""
    small_demo: bool = False
    """Let ``attnkit demo`` make do with little."""
    enter: str | None = None
    """Serve what follows in a name space of its own, a file system of ``size`` bytes mounted here."""
    size: int | None = None
    """Give the file system mounted there so many bytes."""
    copy: tuple[str, str] | None = None
    """Copy a folder."""
    leave: bool = False
    """Leave the name space."""


@dataclass(frozen=True)
class Answer:
    """How it ended."""

    code: int = 0
    """The exit code, or a signal's number below zero."""
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    calls: list[tuple[str, str]] = field(default_factory=list)
    """The calls that changed the disk, name and path, as far as they were made."""


def serve(requests: Any, answers: Any) -> None:
    """Answer requests until there are no more."""
    mounted = ""
    for line in requests:
        request = Request(**json.loads(line))
        answer = Answer()
        try:
            if request.leave:
                os._exit(0)
            elif request.enter is not None:
                if os.fork():
                    os.wait()  # the child answers until it leaves; what follows answers that it has
                else:
                    mounted = request.enter
                    enter(mounted, request.size or 0)
            elif request.size is not None:
                mount(mounted, request.size, 32)  # MS_REMOUNT
            elif request.copy is not None:
                shutil.copytree(*request.copy)
            else:
                answer = attempt(request)
        except OSError as error:
            answer = Answer(-1, err=str(error))
        print(json.dumps(asdict(answer)), file=answers, flush=True)


def attempt(request: Request) -> Answer:
    """Run a command in a child, kill it where that is asked for, and tell how it ended."""
    pipes = [os.pipe() for _ in range(3)]
    began = time.monotonic()
    child = os.fork()
    if not child:
        run(request, [write for _, write in pipes])
    for _, write in pipes:
        os.close(write)
    readers = [read for read, _ in pipes]
    output: list[bytes] = [b"", b"", b""]
    status = 0
    due = None if request.kill_after is None else began + request.kill_after
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        now = time.monotonic()
        if due is None and request.kill_late is not None and output[2].count(b"\n") >= (request.kill_call or 0):
            due = now + request.kill_late
        if found:
            break
        if (due is not None and now >= due) or now > began + LIMIT:
            os.kill(child, signal.SIGKILL)
        drain(readers, output, 0.002 if due is None else min(0.002, max(0.0, due - now)))
    seconds = time.monotonic() - began
    drain(readers, output, 0.0)
    for reader in readers:
        os.close(reader)
    if seconds > LIMIT:
        raise OSError(f"{request.argv} took more than {LIMIT} seconds")
    bury(child)
    calls = [tuple(json.loads(line)) for line in output[2].splitlines()]
    code = os.waitstatus_to_exitcode(status)
    return Answer(code, output[0].decode(), output[1].decode(), seconds, calls)


def drain(readers: list[int], output: list[bytes], wait: float) -> None:
    """Take what the child has written, waiting so many seconds for something to come."""
    ready = select.select(readers, [], [], wait)[0]
    while ready:
        ended = True
        for reader in ready:
            data = os.read(reader, 1 << 16)
            output[readers.index(reader)] += data
            ended = ended and not data
        if ended:
            time.sleep(wait)
            return
        ready = select.select(readers, [], [], 0)[0]


def bury(child: int) -> None:
    """Wait for processes that the child has started: none may continue without it."""
    until = time.monotonic() + 10
    while True:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        try:
            os.killpg(child, 0)
        except (ProcessLookupError, PermissionError):
            return
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            raise OSError("a process that the command had started went on without it")
        time.sleep(0.002)


def run(request: Request, pipes: list[int]) -> None:
    """Be the child: run the command as a process of its own would, and end."""
    with ending():
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(pipes[0], 1)
        os.dup2(pipes[1], 2)
        os.chdir(request.folder)
        os.environ.update(request.environment)
        if request.small_demo:
            make_demo_small()
        if request.largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request.largest_file,) * 2)
        if request.quick:
            os.fsync = lambda descriptor: None
        if request.watch is not None:
            Watch(Path(request.watch)).install()
        else:
            DiskCalls(judge(request, pipes[2])).install()
        sys.argv = ["attnkit", *request.argv]
        from attnkit.cli.main import main

        main()


def judge(request: Request, announced: int) -> Any:
    """Return what is done before each call that changes the disk: announce it; fail or end where that is asked for."""
    write = os.write

    def before(call: Call) -> None:
        write(announced, json.dumps([call.name, call.path]).encode() + b"\n")
        if call.number == request.kill_call and request.kill_late is None:
            os.kill(os.getpid(), signal.SIGKILL)
        failing = request.fail_call is not None and call.number >= request.fail_call
        if failing and (request.fail_on or call.number == request.fail_call):
            call.halve()
            raise OSError(request.fail_errno, os.strerror(request.fail_errno))

    return before


def make_demo_small() -> None:
    """Let the demo take a moment and train for a few steps."""
    from attnkit import demo

    sizes = {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.2}
    shorter = {"limits": {"max_steps": 8}, "evaluation": {"every_steps": 4}, "threads": 1, "device": "cpu"}
    shorter |= {"decoding": {"beam_size": 1, "max_ratio": 1.0, "extra": 2}, "precision": "float32"}
    shorter |= {"vocabulary": {"kind": "bpe", "size": 300}}
    demo.SIZES = (60, 2, 2)
    demo.CONFIG = {**demo.CONFIG, **shorter, "model": {**demo.CONFIG["model"], **sizes}}


def enter(folder: str, size: int) -> None:
    """Mount an empty file system of so many bytes on a folder, seen by this process alone."""
    ids = (os.getuid(), os.getgid())
    if LIBC.unshare(0x10000000 | 0x20000):  # CLONE_NEWUSER | CLONE_NEWNS
        raise refused("unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {ids[0]} 1"), ("gid_map", f"0 {ids[1]} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    mount(folder, size)


def mount(folder: str, size: int, flags: int = 0) -> None:
    """Mount a file system in memory, or give it another size."""
    if LIBC.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, f"size={size}".encode()):
        raise refused("mount")


def refused(what: str) -> OSError:
    """Return what the last call into the C library has met."""
    number = ctypes.get_errno()
    return OSError(number, f"{what}: {os.strerror(number)}")


LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Import everything, then serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import_everything()
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
