"""Lock of a folder: held by one process, released by the system when it exits."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
import time
from pathlib import Path

from pydantic import BaseModel, ValidationError

from attnkit.errors import SystemFailure, system_failure
from attnkit.io import atomic
from attnkit.io.safe_read import open_regular_file

FILE_NAME = "lock"
_TRIES = 20
_PAUSE = 0.02  # seconds
_LENGTH = 255  # equal for all owners, so that each text overwrites the previous one completely
# A forked child inherits the lock, which would outlive the parent. Children therefore close these descriptors.
_held: set[int] = set()


class Owner(BaseModel, frozen=True, extra="forbid", strict=True):
    """Content of the lock file: the current or the last owner."""

    pid: int
    host: str
    since: str


class Lock:
    """A held lock, released by ``release``, at the end of a ``with`` block or on exit."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._pid = os.getpid()
        _held.add(descriptor)

    def release(self) -> None:
        """Release the lock; do nothing in a forked child or if it is already released."""
        if self._pid == os.getpid() and self.descriptor in _held:
            _held.discard(self.descriptor)
            os.close(self.descriptor)
        self._pid = 0

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.release()


def take_lock(folder: Path) -> Lock:
    """Lock an existing folder, without blocking.

    Raises ``SystemFailure``, naming process and host, if another process holds the lock.
    """
    path = folder / FILE_NAME
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    text = Owner(pid=os.getpid(), host=socket.gethostname(), since=now).model_dump_json().ljust(_LENGTH) + "\n"
    lock = Lock(atomic.open_in_place(path))
    try:
        # Another process may hold the lock only to test it (``is_locked``): try again.
        for attempt in range(_TRIES):
            try:
                fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == _TRIES - 1:
                    raise
                time.sleep(_PAUSE)
        if not path.exists() or not os.path.samestat(os.fstat(lock.descriptor), path.stat()):
            raise SystemFailure(f"{folder} was moved away by another process", help="run the same command again")
        # Overwritten in place, never empty: this text identifies a run that was killed before its first checkpoint.
        atomic.write_in_place(lock.descriptor, text.encode())
    except BaseException as error:
        lock.release()
        if isinstance(error, BlockingIOError):
            raise _in_use(folder) from None
        if isinstance(error, OSError):
            raise system_failure("lock", path, error) from error
        raise
    return lock


def check_not_in_use(folder: Path) -> None:
    """Raise ``SystemFailure`` if a folder, which need not exist, is locked.

    Commands call it before slow imports. Other errors are reported by ``take_lock``.
    """
    if is_locked(folder):
        raise _in_use(folder)


def is_locked(folder: Path) -> bool:
    """Return whether a process holds the lock of a run folder."""
    try:
        # A shared lock, released at once. A run that starts at that moment tries again.
        with open_regular_file(folder / FILE_NAME) as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (OSError, ValueError):
        pass
    return False


def lock_holder(folder: Path) -> str | None:
    """Return the lock holder, e.g. "process 12 on host since ..."; None if unlocked."""
    return _name(read_owner(folder)) if is_locked(folder) else None


def _name(owner: Owner | None) -> str:
    return f"process {owner.pid} on {owner.host} since {owner.since}" if owner else "another process"


def read_owner(folder: Path) -> Owner | None:
    """Return the owner in the lock file; None if it is missing or unreadable."""
    path = folder / FILE_NAME
    with contextlib.suppress(OSError, ValidationError):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 4096:
            return Owner.model_validate_json(path.read_bytes())
    return None


def _in_use(folder: Path) -> SystemFailure:
    owner = read_owner(folder)
    stop = f"wait for it, stop it (kill {owner.pid}), or" if owner else "wait for it or"
    return SystemFailure(f"{folder} is in use by {_name(owner)}", help=f"{stop} choose another folder")


def _release_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_release_in_child)
