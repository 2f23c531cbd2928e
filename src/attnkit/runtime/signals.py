"""Signals, CPU counts and memory: stop requests that a loop polls. Torch-free."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
"""Signals that ask a command to stop; SIGHUP is sent when a terminal or connection is lost."""


def launched_rank() -> int | None:
    """Return the rank set by ``torchrun``; None if not launched by it."""
    return int(os.environ["RANK"]) if "RANK" in os.environ and "WORLD_SIZE" in os.environ else None


def usable_cpus() -> int:
    """Return the number of CPUs available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def release_free_memory() -> None:
    """Give free pages inside the heap back to the system, where the C library can (glibc); nothing elsewhere.

    Tensors of ever new sizes leave holes in the heap that add up to gigabytes within an epoch.
    """
    if _TRIM is not None:
        _TRIM(0)


def release_library(name: str) -> None:
    """Give a library's pages back, on Linux; what is needed later is read from its file again.

    A compiler that has done its work holds tens of megabytes that nothing needs any more. Only mappings of which no
    page differs from the file are given up, so that nothing can be lost.
    """
    try:
        with Path("/proc/self/smaps").open() as stream:
            spans = _unchanged(stream, name)
        for begin, end in spans:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DROP)
    except (OSError, AttributeError, TypeError, ValueError):
        pass  # another system


def _unchanged(smaps: Iterable[str], name: str) -> list[tuple[int, int]]:
    """Return where a file is mapped that cannot be written to there, and has not been, by the lines of ``smaps``."""
    found: list[tuple[int, int]] = []
    for line in smaps:
        first, *rest = line.split(maxsplit=5)
        if not first.endswith(":"):
            here = name in rest[-1] and len(rest) == 5 and rest[0][0] == "r" and rest[0][1] == "-"
            if here:
                begin, end = first.split("-")
                found.append((int(begin, 16), int(end, 16)))
        elif here and first in ("Private_Dirty:", "Shared_Dirty:", "Anonymous:", "Swap:") and rest[0] != "0":
            found.pop()
            here = False
    return found


_DROP = 4  #: MADV_DONTNEED of Linux


try:
    _TRIM: Any = ctypes.CDLL(None).malloc_trim
except (OSError, AttributeError, TypeError):
    _TRIM = None


class StopRequests:
    """Turn SIGTERM, SIGINT and SIGHUP into a stop request that a loop polls; a second signal exits immediately.

    Under ``torchrun`` the second signal is ignored: each rank receives the job's signal twice, once forwarded by
    torchrun. Torchrun itself kills ranks that exceed its timeout.
    Until ``defer`` is called, and again after ``release``, there is nothing to save, and a signal ends the command as
    it ends any other (``signals.Signals``).
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Return whether a stop was asked for."""
        return self.signal is not None

    def __enter__(self) -> StopRequests:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.signal is None:  # else the process is about to end, and the next signal is the second
            self._restore()

    def defer(self) -> None:
        """Record signals from now on instead of raising."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as in a job that a shell has put in the background
                self._previous[number] = signal.signal(number, self._note)

    def release(self) -> None:
        """Restore the previous handlers, and re-raise a recorded signal."""
        self._restore()
        if self.signal is not None:
            signal.raise_signal(self.signal)

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None and launched_rank() is None:
            if number not in (signal.SIGTERM, signal.SIGINT):
                return  # a lost terminal sends SIGHUP twice: from the kernel and from the shell
            os._exit(128 + number)
        self.signal = number


INTERRUPTED, TERMINATED = 130, 143


class Signals:
    """Context manager in which SIGTERM, SIGINT and SIGHUP raise, so that cleanup code runs.

    A second signal exits immediately, except under ``torchrun``, which forwards the job's signals.
    """

    def __init__(self) -> None:
        self.armed = True
        """Whether the next signal is the first one."""
        self.code = 0
        """Exit code after a signal."""
        self._previous: dict[int, Any] = {}
        self._hook = sys.unraisablehook

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:  # as in a job that a shell has put in the background
                    self._previous[number] = signal.signal(number, self._interrupt)
        sys.unraisablehook = self._raise_again
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    def ignore(self) -> None:
        """Ignore further signals permanently, so that the exit code is kept during shutdown."""
        for number in self._previous:
            signal.signal(number, signal.SIG_IGN)
            self._previous[number] = signal.SIG_IGN

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            self.armed, self.code = False, INTERRUPTED if number == signal.SIGINT else TERMINATED
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(TERMINATED)
        if "TORCHELASTIC_RUN_ID" not in os.environ and number in (signal.SIGTERM, signal.SIGINT):
            os._exit(128 + number)  # not for SIGHUP, which a lost terminal sends twice

    def _raise_again(self, lost: Any) -> None:
        """Re-raise a signal that arrived where exceptions are swallowed, as in ``__del__``."""
        if isinstance(lost.exc_value, KeyboardInterrupt | SystemExit):
            self.armed = True
            number = signal.SIGINT if isinstance(lost.exc_value, KeyboardInterrupt) else signal.SIGTERM
            # Later, for in here it would be lost again.
            threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, number)).start()
        else:
            self._hook(lost)
