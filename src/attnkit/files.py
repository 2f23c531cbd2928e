"""Every write to disk: whole files and folders that appear complete or not at all, and plain appends.

Durable means: written under a temporary name beside the goal, fsynced, renamed, and the parent folder fsynced. A crash
at any moment leaves the old content or the new, and at most one sibling named ``.tmp-<name>-<pid>``, which the next
writer of the same name removes. Every ``OSError`` becomes a ``SystemFailure`` that names the path and the cause.

Knows nothing of what it writes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, Literal, TextIO, TypeAlias, TypeVar, overload

from attnkit.errors import SystemFailure

Data: TypeAlias = bytes | bytearray | memoryview
Stream = TypeVar("Stream", bound=IO[str] | IO[bytes])

_TEMPORARY = re.compile(r"\.tmp-(?P<name>.+)-(?P<pid>\d{1,9})", re.DOTALL)
# O_EXCL and O_NOFOLLOW: a run folder may come from a stranger; a link planted in it must not lead a write elsewhere.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KEPT = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_HELP = {
    errno.ENOSPC: "free some disk space, then run the same command again",
    errno.EDQUOT: "free some of your disk quota, then run the same command again",
    errno.EFBIG: "raise the file size limit (ulimit -f), then run the same command again",
    errno.EACCES: "check the owner and the permissions, or choose another place",
    errno.EPERM: "check the owner and the permissions, or choose another place",
    errno.EROFS: "the file system is read-only: choose another place",
    errno.EMFILE: "raise the limit of open files (ulimit -n), then run the same command again",
    errno.ENFILE: "close other programs, then run the same command again",
    errno.ENOENT: "check the spelling of the folder's name",
    errno.ENOTDIR: "a part of this path is a file: choose another place",
    errno.EISDIR: "name a file, not a folder",
    errno.EEXIST: "move it aside or choose another name",
    errno.ENOTEMPTY: "move it aside or choose another name",
    errno.ELOOP: "replace the symbolic link by the file itself",
}


def failure(action: str, path: Path | str, error: OSError) -> SystemFailure:
    """Return the error a user sees for ``error``; ``action`` reads like "write" or "make the folder"."""
    cause = error.strerror or str(error) or type(error).__name__
    help = _HELP.get(error.errno or 0, "check the disk, then run the same command again")
    return SystemFailure(f"cannot {action} {path}: {cause}", help=help)


@contextlib.contextmanager
def _naming(action: str, path: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise failure(action, path, error) from error


def write_bytes(path: Path, data: Data) -> None:
    """Write a whole file durably: afterwards ``path`` holds its old content or all of the new, whatever happens."""
    temporary = _temporary(path)
    try:
        with _naming("write", path):
            _remove(temporary)
            _write_new(temporary, data)
            temporary.replace(path)
            _sync_folder(path.parent)
    except BaseException:
        _remove_quietly(temporary)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a whole UTF-8 text file durably, lines ending as they stand in ``text``."""
    write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def write_into(path: Path, data: Data) -> None:
    """Write and fsync a file that must not exist yet, inside the temporary folder that ``new_folder`` gives."""
    with _naming("write", path):
        _write_new(path, data)


@contextlib.contextmanager
def create(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file that must not exist yet, for long streams inside a ``new_folder``; fsynced at the end."""
    with _naming("write", path):
        descriptor = os.open(path, _NEW, 0o666)
    with _closing(path, os.fdopen(descriptor, "wb", buffering=1 << 20)) as stream:
        yield stream


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes ``path`` when the block ends well and vanishes when it does not.

    Every file and folder below it is fsynced before the rename. ``path`` must not exist, or be an empty folder.
    """
    temporary = _temporary(path)
    try:
        with _naming("make the folder", path):
            _sweep_siblings(path)
            temporary.mkdir()
        yield temporary
        with _naming("write the folder", path):
            _sync_tree(temporary)
            temporary.rename(path)
            _sync_folder(path.parent)
    except BaseException:
        _remove_quietly(temporary)
        raise


@overload
def open_output(path: Path | None, binary: Literal[False] = False) -> contextlib.AbstractContextManager[TextIO]: ...
@overload
def open_output(path: Path | None, binary: Literal[True]) -> contextlib.AbstractContextManager[BinaryIO]: ...
def open_output(path: Path | None, binary: bool = False) -> contextlib.AbstractContextManager[IO[str] | IO[bytes]]:
    """Return a context giving a UTF-8 text stream (or a binary one) for results: standard output if ``path`` is None.

    A plain file appears under its name only when the block ends well. Devices, pipes and what lies under ``/dev`` or
    ``/proc`` are written straight away. Flush the stream to show a line at once.
    Lets ``BrokenPipeError`` of standard output pass: a reader that has seen enough is no failure.
    """
    if path is None:
        return _standard_output(binary)
    with _naming("write", path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # /dev/stdout may lead to a plain file that the shell holds open: replacing that file would lose the output.
        if Path(os.path.abspath(path)).parts[1:2] in (("dev",), ("proc",)) or _is_special(path):  # noqa: PTH100
            return _closing(path, _stream(os.open(path, os.O_WRONLY | os.O_CLOEXEC), binary), sync=False)
        return _renamed_output(path, path.resolve(), binary)


@contextlib.contextmanager
def _standard_output(binary: bool) -> Iterator[IO[str] | IO[bytes]]:
    if sys.stdout is None:
        raise SystemFailure("cannot write standard output: it is closed", help="name an output file")
    raw: BinaryIO = sys.stdout.buffer
    stream = raw if binary else io.TextIOWrapper(raw, "utf-8", "backslashreplace", "\n", line_buffering=raw.isatty())
    try:
        sys.stdout.flush()
        yield stream
        stream.flush()
    except OSError as error:
        # An error with a file name comes from another file that the block works with.
        if isinstance(error, BrokenPipeError) or error.filename is not None:
            raise
        raise failure("write", "standard output", error) from error
    finally:
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):
                stream.detach()


@contextlib.contextmanager
def _renamed_output(named: Path, goal: Path, binary: bool) -> Iterator[IO[str] | IO[bytes]]:
    temporary = _temporary(goal)
    try:
        with _naming("write", named):
            _sweep_siblings(goal)
            descriptor = os.open(temporary, _NEW, 0o666)
        with _closing(named, _stream(descriptor, binary)) as stream:
            yield stream
        with _naming("write", named):
            temporary.replace(goal)
            _sync_folder(goal.parent)
    except BaseException:
        _remove_quietly(temporary)
        raise


def _stream(descriptor: int, binary: bool) -> IO[str] | IO[bytes]:
    if binary:
        return os.fdopen(descriptor, "wb")
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", newline="\n")


@contextlib.contextmanager
def _closing(path: Path, stream: Stream, *, sync: bool = True) -> Iterator[Stream]:
    try:
        yield stream
        stream.flush()
        if sync:
            os.fsync(stream.fileno())
        stream.close()
    except OSError as error:
        if error.filename is not None:
            raise
        raise failure("write", path, error) from error
    finally:
        with contextlib.suppress(OSError):
            stream.close()


def append_text(path: Path, text: str) -> None:
    """Append UTF-8 text, not durably (see ``sync``). A failed append is undone where that is possible."""
    with _naming("write", path):
        descriptor = os.open(path, _KEPT | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            size = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, text.encode("utf-8", errors="backslashreplace"))
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)


def truncate(path: Path, size: int) -> None:
    """Cut a file to its first ``size`` bytes, durably. A shorter file stays as it is."""
    with _naming("truncate", path):
        descriptor = os.open(path, _KEPT)
        try:
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync(path: Path) -> None:
    """Make what was appended to a file survive a power cut."""
    with _naming("write", path):
        _sync_file(path)
        _sync_folder(path.parent)


def make_dirs(path: Path) -> None:
    """Make a folder and its missing parents, durably."""
    with _naming("make the folder", path):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(exist_ok=True)
            _sync_folder(folder.parent)
        if not path.is_dir():
            raise FileExistsError(errno.EEXIST, "a file of this name exists")


def move(source: Path, goal: Path) -> None:
    """Rename a file or folder within one file system, durably; ``goal`` must not exist."""
    with _naming("move", source):
        if os.path.lexists(goal):
            raise FileExistsError(errno.EEXIST, f"{goal} exists")
        source.rename(goal)
        _sync_folder(goal.parent)
        _sync_folder(source.parent)


def remove_tree(path: Path) -> None:
    """Remove a file or folder if it exists. A crash never leaves a half-empty folder under its own name."""
    temporary = _temporary(path)
    with _naming("remove", path):
        if not os.path.lexists(path):
            return
        _remove(temporary)
        path.rename(temporary)
        _sync_folder(path.parent)
        _remove(temporary)


def sweep(folder: Path) -> None:
    """Remove every temporary left directly in a folder. Only for one who holds the lock that guards the folder."""
    with _naming("clean", folder):
        for entry in folder.iterdir():
            if _TEMPORARY.fullmatch(entry.name):
                _remove(entry)


def lock(path: Path, text: str) -> int | None:
    """Take the exclusive ``flock`` of a file without waiting and write ``text`` into it; the file is never removed.

    Returns the descriptor that holds the lock until it is closed or the process dies, or None when another holds it.
    Programs that are executed do not inherit it; a forked child must close it.
    """
    with _naming("lock", path):
        descriptor = os.open(path, _KEPT | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            _write_all(descriptor, text.encode())
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def _temporary(path: Path) -> Path:
    # The name is cut so that the whole stays under the 255 bytes that file systems allow.
    name = os.fsdecode(os.fsencode(path.name)[:200])
    return path.parent / f".tmp-{name}-{os.getpid()}"


def _sweep_siblings(path: Path) -> None:
    prefix = _temporary(path).name.rsplit("-", 1)[0] + "-"
    for entry in path.parent.iterdir():
        pid = entry.name.removeprefix(prefix)
        if entry.name.startswith(prefix) and pid.isdecimal() and not _is_other_process(int(pid)):
            _remove(entry)


def _is_other_process(pid: int) -> bool:
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _is_special(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    return not stat.S_ISREG(mode)


def _write_new(path: Path, data: Data) -> None:
    descriptor = os.open(path, _NEW, 0o666)
    try:
        _write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: Data) -> None:
    # One call writes at most 2 GiB; slices of a memoryview copy nothing.
    view = memoryview(data).cast("B")
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network and user-space file systems cannot sync a folder; they order renames themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _sync_tree(folder: Path) -> None:
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            continue
        if entry.is_dir():
            _sync_tree(entry)
        else:
            _sync_file(entry)
    _sync_folder(folder)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _remove_quietly(path: Path) -> None:
    with contextlib.suppress(OSError):
        _remove(path)
