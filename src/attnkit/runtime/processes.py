"""What a process is told by who started it, the processors it may use and the memory it gives back. Knows no torch."""

from __future__ import annotations

import ctypes
import os
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


def _find_trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None


_TRIM = _find_trim()
