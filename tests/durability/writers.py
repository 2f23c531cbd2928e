"""Notes whoever opens a file for writing or changes a folder: in the end only ``attnkit/io/atomic.py`` may have.

Installed once, in a process that was forked for it: an audit hook cannot be removed.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

from disk_calls import frames

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {f"os.{name}" for name in ("rename", "remove", "rmdir", "mkdir", "link", "symlink", "truncate")}
CHANGES |= {f"os.{name}" for name in ("chmod", "chown", "utime", "setxattr", "removexattr", "chflags")}
CHANGES |= {"tempfile.mkstemp", "tempfile.mkdtemp", "sqlite3.connect"}


class Watch:
    """Appends what it sees to a file of JSON lines: the event, its paths, the code at work from the inside out."""

    def __init__(self, report: Path) -> None:
        self._report = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._write, self._pwrite = os.write, os.pwrite
        self._busy = False

    def install(self) -> None:
        """Watch from now on, to the end of the process."""
        os.write, os.pwrite = self._watched_write, self._watched_pwrite  # type: ignore[assignment]
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            if args[2] & WRITING:
                self._note(event, args[:1])
        elif event in CHANGES:
            self._note(event, args[:2] if event in ("os.rename", "os.link", "os.symlink") else args[:1])

    def _watched_write(self, descriptor: int, data: Any) -> int:
        self._note_descriptor("os.write", descriptor)
        return self._write(descriptor, data)

    def _watched_pwrite(self, descriptor: int, data: Any, place: int) -> int:
        self._note_descriptor("os.pwrite", descriptor)
        return self._pwrite(descriptor, data, place)

    def _note_descriptor(self, event: str, descriptor: int) -> None:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            self._note(event, (descriptor,))

    def _note(self, event: str, targets: tuple[Any, ...]) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            paths = [path_of(target) for target in targets]
            by = list(dict.fromkeys(code.co_filename for code in frames() if code.co_filename != __file__))
            line = json.dumps({"event": event, "paths": paths, "by": by})
            self._write(self._report, line.encode() + b"\n")
        finally:
            self._busy = False


def path_of(target: Any) -> str:
    """Return the absolute path of a file that is named, or open."""
    if isinstance(target, int):
        return str(Path(f"/proc/self/fd/{target}").readlink())
    return str(Path(os.fsdecode(target)).absolute())
