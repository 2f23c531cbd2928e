"""What a process is told by who started it, the processors it may use and the memory it gives back. Knows no torch."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any


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
    """Give the pages of a library's code back, on Linux; what is called later is read from its file again.

    A compiler that has done its work holds tens of megabytes that nothing needs any more. Code is never written to, so
    that nothing can be lost; the library's other pages are left alone.
    """
    try:
        with Path("/proc/self/maps").open() as stream:
            lines = [line.split(maxsplit=5) for line in stream if name in line]
        for span, rights, *_ in lines:
            if rights == "r-xp":
                begin, end = (int(place, 16) for place in span.split("-"))
                ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _DROP)
    except (OSError, AttributeError, TypeError, ValueError):
        pass  # another system


_DROP = 4
"""MADV_DONTNEED of Linux."""


def _find_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


_TRIM = _find_trim()
