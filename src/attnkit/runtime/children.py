"""Python processes that do a part of the work of this one."""

import ctypes
import os
import signal
import sys
from contextlib import suppress


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
