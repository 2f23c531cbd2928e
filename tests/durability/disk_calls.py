"""Notes every call of ``attnkit/io/atomic.py`` that changes the disk, so that a process can die or fail at any of them.

Installed once, in a process that was forked for it: nothing is ever put back.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import attnkit

CALLS: list[tuple[Any, str]] = [
    *((os, name) for name in ("open", "write", "pwrite", "fsync", "ftruncate", "unlink", "rmdir")),
    *((Path, name) for name in ("mkdir", "rename", "replace", "unlink")),
]
PACKAGE = str(Path(attnkit.__file__).parent) + os.sep


class Call(NamedTuple):
    """A call that is about to be made."""

    number: int
    """From 1."""
    name: str
    target: Path | str | int
    """Path or descriptor."""
    halve: Callable[[], object]
    """Makes half of the call, where it is a write that can be torn."""

    @property
    def path(self) -> str:
        """Return what it is made on."""
        if isinstance(self.target, int):
            with contextlib.suppress(OSError):
                return str(Path(f"/proc/self/fd/{self.target}").readlink())
        return str(self.target)


def attnkit_file() -> str:
    """Return the file of attnkit whose code is at work, "" where it is none's."""
    for frame in frames():
        if frame.co_filename.startswith(PACKAGE):
            return frame.co_filename.removeprefix(PACKAGE)
    return ""


def frames() -> Iterator[CodeType]:
    """Yield what is at work, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


class DiskCalls:
    """Counts calls and hands each to ``context_ids``, which may raise or end the process."""

    def __init__(self, before: Callable[[Call], None]) -> None:
        self._before = before
        self._n = 0
        self._inside = False

    def install(self) -> None:
        """Put a counting call in the place of every real one."""
        for owner, name in CALLS:
            setattr(owner, name, self._counting(name, getattr(owner, name)))
        os.fdopen = self._opening(os.fdopen)  # type: ignore[assignment]

    def note(self, name: str, target: Any, halve: Callable[[], object] = lambda: None) -> None:
        """Count a call of atomic.py; one that Path makes through os counts once."""
        if self._inside or attnkit_file() != "io/atomic.py":
            return
        self._n += 1
        self._inside = True
        try:
            self._before(Call(self._n, name, target, halve))
        finally:
            self._inside = False

    def _counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(target: Any, *args: Any, **kwargs: Any) -> Any:
            def halve() -> None:
                if name in ("write", "pwrite"):
                    real(target, bytes(args[0])[: len(args[0]) // 2], *args[1:])

            self.note(name, target, halve)
            inside, self._inside = self._inside, True
            try:
                return real(target, *args, **kwargs)
            finally:
                self._inside = inside

        return call

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        calls = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int:
                view = memoryview(data).cast("B")
                calls.note("write", self.fileno(), lambda: io.FileIO.write(self, view[: len(view) // 2]))
                return super().write(data)

        def fdopen(descriptor: int, mode: str = "r", buffering: int = -1, *others: Any) -> Any:
            if mode != "wb":
                return real(descriptor, mode, buffering, *others)
            return io.BufferedWriter(Raw(descriptor, mode), buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)

        return fdopen
