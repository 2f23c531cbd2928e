"""Exceptions for user-facing errors: what went wrong, where, and how to fix it."""

import errno
from pathlib import Path

_AGAIN = "then run the same command again"
_HELP = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), f"free some disk space or quota, {_AGAIN}"),
    errno.EFBIG: f"raise the file size limit (ulimit -f), {_AGAIN}",
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "check owner and permissions, or choose another folder"),
    errno.EMFILE: f"raise the limit of open files (ulimit -n), {_AGAIN}",
    errno.ENOENT: "check the spelling of the folder's name",
    errno.EISDIR: "name a file, not a folder",
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.ENOTEMPTY), "move it aside or choose another name"),
    errno.ELOOP: "replace the symbolic link with the file itself",
}


class AttnkitError(Exception):
    """An error that a user can understand and fix.

    Shown as at most three lines: ``error: what``, the place, ``help: next step``.
    """

    exit_code = 1
    silent = False  #: whether nothing is printed: it has been said, or nobody is left to tell

    def __init__(self, what: str, *, where: str | None = None, help: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.help = help

    def lines(self) -> list[str]:
        """Return the message as it is printed, one string per line, none of them containing a line break."""
        parts = [("error: ", self.what), ("  at ", self.where), ("help: ", self.help)]
        shown = [] if self.silent else [f"{label}{text}" for label, text in parts if text or label == "error: "]
        return [" ".join(line.splitlines()) for line in shown]


class UsageError(AttnkitError):
    """Wrong flags or configuration."""

    exit_code = 2


class DataError(AttnkitError):
    """Input text that cannot be used as it is."""

    exit_code = 3


class RunError(AttnkitError):
    """A run folder or model that is missing, damaged or of another kind."""

    exit_code = 4


class SystemFailure(AttnkitError):
    """Disk, permission or lock."""

    exit_code = 5


class PeerLostError(SystemFailure):
    """Another process of the run ended or stopped responding; the same command may succeed."""


class DivergedError(AttnkitError):
    """Training produced non-finite numbers ten times in a row."""

    exit_code = 6


class StoppedError(AttnkitError):
    """Stopped on request with a checkpoint saved: running the same command again resumes."""

    exit_code = 75


class PeerFailedError(AttnkitError):
    """A failure reported by another process or an earlier attempt; this process ends silently with its exit code."""

    silent = True

    def __init__(self, what: str, exit_code: int) -> None:
        super().__init__(what)
        self.exit_code = exit_code


class BrokenOutputError(AttnkitError):
    """Standard output was closed, e.g. by ``| head``; not a failure."""

    exit_code = 0
    silent = True


def system_failure(action: str, path: Path | str, error: OSError) -> SystemFailure:
    """Return the error a user sees for ``error``; ``action`` reads like "write" or "make the folder"."""
    help = _HELP.get(error.errno or 0, f"check the disk, {_AGAIN}")
    return SystemFailure(f"cannot {action} {path}: {error.strerror or error}", help=help)


def exit_code(error: BaseException | None) -> int:
    """Return the exit code of a process ended by ``error``; 0 if None."""
    if error is None:
        return 0
    if isinstance(error, AttnkitError):
        return error.exit_code
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code
    return 130 if isinstance(error, KeyboardInterrupt) else 1
