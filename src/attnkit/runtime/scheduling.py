"""How the system shares its processors among the threads of this process.

Linux gives threads slices of time (EEVDF: Stoica and Abdel-Wahab 1995). Linux 6.12 and later let them set the length of
these, .1 to 100 ms: a thread that wakes takes the processor from one with longer slices. So threads that answer set
short ones, threads that compute long ones.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
import threading
from contextlib import suppress

SHORT, LONG = 100_000, 100_000_000  #: nanoseconds of a slice; the least and the most that Linux gives
NICER = 5  #: by how much threads that compute give way
_CALLS = {"x86_64": 314, "aarch64": 274, "riscv64": 274}  #: machine -> number of the system call sched_setattr
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
"""struct sched_attr: size, policy, flags, niceness, priority, run time (of a slice), deadline, period."""
_KEEP_POLICY = 0x08  #: flag: the policy stays as the user has set it (``chrt``)


def schedule_answering() -> None:
    """Let the calling thread run as soon as it has something to do.

    Threads that it starts inherit this. Where the system does not know it, or does not allow it, nothing changes.
    """
    _schedule(SHORT, 0)


def schedule_computing() -> None:
    """Let the calling thread compute while others have nothing to do.

    Threads that it starts inherit this. Where the system does not know it, or does not allow it, nothing changes.
    """
    _schedule(LONG, NICER)


def schedule_usually() -> None:
    """Let the calling thread run as the main thread did at first."""
    _schedule(0, 0)


def _schedule(time_slice: int, nicer: int) -> None:
    """Set the slice (0: the usual one) and the niceness of the calling thread.

    ``nicer`` is by how much it is nicer than the main thread.
    """
    with suppress(OSError, AttributeError):  # not on every system
        niceness = os.getpriority(os.PRIO_PROCESS, os.getpid()) + nicer
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
        if sys.platform == "linux" and platform.machine() in _CALLS:
            attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, 0, _KEEP_POLICY, min(19, niceness), 0, time_slice, 0, 0)
            ctypes.CDLL(None).syscall(_CALLS[platform.machine()], 0, attributes, 0)
