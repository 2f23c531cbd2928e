"""What a process is told by who started it, the processors it may use and the memory it gives back. Knows no torch."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path
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


_DROP = 4
"""MADV_DONTNEED of Linux."""


def _find_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


_TRIM = _find_trim()
