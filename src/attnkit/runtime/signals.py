"""Signals, child processes, number of CPUs and release of memory. Torch-free."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
"""Signals that ask a command to stop; SIGHUP is sent when a terminal or connection is lost."""


@contextmanager
def defer_signals() -> Iterator[None]:
    """Delay stop signals to the end of the block; children inherit the mask."""
    noted: list[int] = []
    here = threading.current_thread() is threading.main_thread()
    previous = {n: signal.signal(n, lambda number, frame: noted.append(number)) for n in STOP_SIGNALS} if here else {}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for stop, handler in previous.items():
            signal.signal(stop, handler)
        for number in noted:
            signal.raise_signal(number)


def launched_rank() -> int | None:
    """Return the rank set by ``torchrun``; None if not launched by it."""
    return int(os.environ["RANK"]) if "RANK" in os.environ and "WORLD_SIZE" in os.environ else None


def usable_cpus() -> int:
    """Return the number of CPUs available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def release_free_memory() -> None:
    """Return free pages of the heap to the system (glibc only).

    Tensors of varying sizes fragment the heap by gigabytes within an epoch.
    """
    if _TRIM is not None:
        _TRIM(0)


def release_library(name: str) -> None:
    """Release the memory of a library; its file is re-read on demand (Linux only).

    A compiler library holds tens of megabytes that are not needed after compilation. Only mappings without modified
    pages are released, so no data can be lost.
    """
    try:
        with Path("/proc/self/smaps").open() as stream:
            spans = _unchanged(stream, name)
        for begin, end in spans:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DROP)
    except (OSError, AttributeError, TypeError, ValueError):
        pass  # not supported on this system


def _unchanged(smaps: Iterable[str], name: str) -> list[tuple[int, int]]:
    """Return address ranges of a file's unmodified read-only mappings in ``smaps``."""
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


_DROP = 4  #: MADV_DONTNEED on Linux


try:
    _TRIM: Any = ctypes.CDLL(None).malloc_trim
except (OSError, AttributeError, TypeError):
    _TRIM = None


class StopRequests:
    """Stop request by SIGTERM, SIGINT or SIGHUP that a loop polls.

    A second signal exits immediately, except under ``torchrun``: each rank receives the job's signal twice, once
    forwarded by torchrun, which itself kills ranks that exceed its timeout. Before ``defer`` and after ``release``,
    there is nothing to save, and signals end the command as usual (``Signals``).
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self._previous: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Return whether a stop was requested."""
        return self.signal is not None

    def __enter__(self) -> StopRequests:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.signal is None:  # otherwise the process is about to end: the next signal is the second
            self._restore()

    def defer(self) -> None:
        """Record signals from now on instead of raising."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:  # as in a background job of a shell
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
                return  # a lost terminal causes two SIGHUPs, from the kernel and from the shell
            os._exit(128 + number)
        self.signal = number


INTERRUPTED, TERMINATED = 130, 143


class Signals:
    """Context in which SIGTERM, SIGINT and SIGHUP raise, so that cleanup code runs.

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
                if signal.getsignal(number) != signal.SIG_IGN:  # as in a background job of a shell
                    self._previous[number] = signal.signal(number, self._interrupt)
        sys.unraisablehook = self._raise_again
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook

    def ignore(self) -> None:
        """Ignore further signals permanently, to keep the exit code during shutdown."""
        if self.code:  # half-built objects may remain until the process ends
            self._hook = self._raise_again
        for number in self._previous:
            signal.signal(number, signal.SIG_IGN)
            self._previous[number] = signal.SIG_IGN

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            self.armed, self.code = False, INTERRUPTED if number == signal.SIGINT else TERMINATED
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(TERMINATED)
        if "TORCHELASTIC_RUN_ID" not in os.environ and number in (signal.SIGTERM, signal.SIGINT):
            if not self.code:  # the first one, while a finished command writes its last output
                with suppress(OSError):
                    os.write(2, b"interrupted\n")
            os._exit(128 + number)  # not for SIGHUP, which a lost terminal causes twice

    def _raise_again(self, lost: Any) -> None:
        """Re-raise a signal whose exception was swallowed, for example in ``__del__``.

        After a signal, errors in ``__del__`` are dropped: they are those of objects whose constructor it interrupted.
        """
        if isinstance(lost.exc_value, KeyboardInterrupt | SystemExit):
            self.armed = True
            number = signal.SIGINT if isinstance(lost.exc_value, KeyboardInterrupt) else signal.SIGTERM
            # After a delay, since an exception raised here would be lost again.
            threading.Timer(0.01, signal.pthread_kill, (threading.main_thread().ident, number)).start()
        elif not self.code:
            self._hook(lost)


def python_command(code: str, *arguments: str) -> list[str]:
    """Return a command that runs code with the module path of this process.

    By itself Python puts the working folder first: a json.py there would shadow the standard one.
    """
    return [sys.executable, "-c", f"import sys\nsys.path[:] = {sys.path!r}\n{code}", *arguments]


def end_with_parent(parent: int) -> None:
    """End this process when its parent ends, even if killed (Linux only)."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # the parent ended before prctl
        os._exit(1)


def begin_worker(parent: int) -> None:
    """End this process with its parent, which alone is asked to stop by signals."""
    end_with_parent(parent)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
