"""Exceptions for user-facing errors: what went wrong, where, and how to fix it."""

import errno
from pathlib import Path

_AGAIN = "then run the same command again"
_HELP = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f"free some disk space or quota, {_AGAIN}"),
    errno.EFBIG: f"raise the file size limit (ulimit -f), {_AGAIN}",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "check owner and permissions, or choose another folder"),
    errno.EMFILE: f"raise the limit on open files (ulimit -n), {_AGAIN}",
    errno.ENOENT: "check the spelling of the folder's name",
    errno.EISDIR: "name a file, not a folder",
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY), "move it aside or choose another name"),
    errno.ELOOP: "replace the symbolic link with the file itself",
}


class AttnkitError(Exception):
    """Base class of errors that the user can understand and fix.

    Printed as at most three lines: ``error: WHAT``, ``at WHERE`` and ``help: NEXT STEP``.
    """

    exit_code = 1
    silent = False  #: print nothing: the error was already reported, or standard output is closed

    def __init__(self, what: str, *, where: str | None = None, help: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.help = help

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        """Where and what next, shown below a traceback (Python 3.11)."""
        return self.lines()[1:]

    def lines(self) -> list[str]:
        """Return the printed lines; line breaks within a text become spaces."""
        parts = [("error: ", self.what), ("  at ", self.where), ("help: ", self.help)]
        shown = [] if self.silent else [f"{label}{text}" for label, text in parts if text or label == "error: "]
        return [" ".join(line.splitlines()) for line in shown]


class UsageError(AttnkitError):
    """Invalid option or configuration."""

    exit_code = 2


class DataError(AttnkitError):
    """Invalid input data."""

    exit_code = 3


class RunError(AttnkitError):
    """Missing, damaged or incompatible run folder or model."""

    exit_code = 4


class SystemFailure(AttnkitError):
    """Failure of the disk, a permission or a lock."""

    exit_code = 5


class PeerLostError(SystemFailure):
    """Loss of another process of the run; running the command again may succeed."""


class DivergedError(AttnkitError):
    """Divergence: training produced non-finite numbers ten times in a row."""

    exit_code = 6


class StoppedError(AttnkitError):
    """Stop on request, after saving a checkpoint; the same command resumes."""

    exit_code = 75


class PeerFailedError(AttnkitError):
    """Failure reported by another process or attempt; exits silently with its code."""

    silent = True

    def __init__(self, what: str, exit_code: int) -> None:
        super().__init__(what)
        self.exit_code = exit_code


class BrokenOutputError(AttnkitError):
    """Closed standard output, e.g. by ``| head``; not a failure."""

    exit_code = 0
    silent = True


def system_failure(action: str, path: Path | str, error: OSError) -> SystemFailure:
    """Return a ``SystemFailure``; ``action`` is a verb phrase, e.g. 'make the folder'."""
    help = _HELP.get(error.errno or 0, f"check the disk, {_AGAIN}")
    return SystemFailure(f"cannot {action} {path}: {error.strerror or error}", help=help)


def exit_code(error: BaseException | None) -> int:
    """Return the exit code of a process that ends with ``error``; 0 for None."""
    if error is None:
        return 0
    if isinstance(error, AttnkitError):
        return error.exit_code
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code
    return 130 if isinstance(error, KeyboardInterrupt) else 1
