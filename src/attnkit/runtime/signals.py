"""Processes and signals: requests to stop that a loop polls, processors, memory. Torch-free."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
"""Signals that ask a command to stop; SIGHUP comes when a terminal or a connection is lost."""


def launched_rank() -> int | None:
    """Return which of the processes of ``torchrun`` this one is; None if it did not start this one."""
    return int(os.environ["RANK"]) if "RANK" in os.environ and "WORLD_SIZE" in os.environ else None


def usable_cpus() -> int:
    """Return how many processors this process may use."""
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
    """Turns SIGTERM, SIGINT and SIGHUP into a wish that a loop asks for; a second signal ends the process at once.

    Under ``torchrun`` it does not: a signal to the whole job comes to a rank twice, the second time handed on by
    torchrun, which itself ends at once what has not ended in its time.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.signal is None:  # else the process is about to end, and the next signal is the second
            self._restore()

    def defer(self) -> None:
        """From now on a signal is only noted."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as in a job that a shell has put in the background
                self._previous[number] = signal.signal(number, self._note)

    def release(self) -> None:
        """From now on a signal ends the work again, and so does one that has been noted and not been asked for."""
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
    """While entered, SIGTERM, SIGINT and SIGHUP end the command as an error does: what it has begun is cleared away.

    Any further one ends the process at once, but under ``torchrun``, which hands on what the whole job has got anyway.
    """

    def __init__(self) -> None:
        self.armed = True
        """Whether the next signal is the first one."""
        self.code = 0
        """What the command ends with for a signal."""
        self._previous: dict[int, Any] = {}
        self._hook = sys.unraisablehook

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in STOP_SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:  # as in a job that a shell has put in the background
                    self._previous[number] = signal.signal(number, self._interrupt)
        sys.unraisablehook = self._raise_again
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    def ignore(self) -> None:
        """Let what has ended keep its exit code, whatever comes while the interpreter clears up: for good."""
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
        """Let a signal come again that came where nothing can be raised, as in ``__del__``, and would be lost."""
        if isinstance(lost.exc_value, KeyboardInterrupt | SystemExit):
            self.armed = True
            number = signal.SIGINT if isinstance(lost.exc_value, KeyboardInterrupt) else signal.SIGTERM
            # Later, for in here it would be lost again.
            threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, number)).start()
        else:
            self._hook(lost)
