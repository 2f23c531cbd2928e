"""The lock of a run folder: one process at a time, free again the moment that process ends, however it ends."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import socket
from pathlib import Path
from types import TracebackType

from pydantic import BaseModel, ValidationError

from attnkit import files
from attnkit.errors import SystemFailure

FILE_NAME = "lock"
# A forked child shares the lock, which would outlive its parent: children close what they find here.
_held: set[int] = set()


class Owner(BaseModel, frozen=True, extra="forbid", strict=True):
    """Who holds the lock, or held it last; the content of the lock file."""

    pid: int
    host: str
    since: str


class Lock:
    """A held lock; ``release`` it, use it in a ``with`` block, or end the process."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._pid = os.getpid()
        _held.add(descriptor)

    def release(self) -> None:
        """Let the folder go. Nothing happens the second time, or in a forked child, which never held it."""
        if self._pid == os.getpid() and self.descriptor in _held:
            _held.discard(self.descriptor)
            os.close(self.descriptor)
        self._pid = 0

    def __enter__(self) -> Lock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def take_lock(folder: Path) -> Lock:
    """Lock an existing folder without waiting.

    Raises ``SystemFailure`` at once, naming process and host, when another process holds it.
    """
    path = folder / FILE_NAME
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    text = Owner(pid=os.getpid(), host=socket.gethostname(), since=now).model_dump_json() + "\n"
    lock = Lock(files.open_in_place(path))
    try:
        fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not path.exists() or not os.path.samestat(os.fstat(lock.descriptor), path.stat()):
            raise SystemFailure(f"{folder} was moved away by another process", help="run the same command again")
        os.ftruncate(lock.descriptor, 0)
        os.write(lock.descriptor, text.encode())
    except BlockingIOError:
        lock.release()
        raise _in_use(folder, read_owner(folder)) from None
    except OSError as error:
        lock.release()
        raise files.failure("lock", path, error) from error
    except BaseException:
        lock.release()
        raise
    return lock


def read_owner(folder: Path) -> Owner | None:
    """Return who wrote the lock file last, None when nothing readable stands there."""
    path = folder / FILE_NAME
    with contextlib.suppress(OSError, ValidationError):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 4096:
            return Owner.model_validate_json(path.read_bytes())
    return None


def _in_use(folder: Path, owner: Owner | None) -> SystemFailure:
    if owner is None:
        return SystemFailure(f"{folder} is in use by another process", help="wait for it or choose another folder")
    return SystemFailure(
        f"{folder} is in use by process {owner.pid} on {owner.host} since {owner.since}",
        help=f"wait for it, stop it (kill {owner.pid}), or choose another folder",
    )


def _let_go_in_child() -> None:
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
