"""Writes to disk: files and folders that appear complete or not at all; appends.

A durable write goes to a temporary name in the same folder, is fsynced and renamed, and the parent folder is fsynced. A
crash leaves either the old or the new content, and at most one sibling named ``.tmp-<name>-<pid>``, which the next
writer of the same name removes. Every ``OSError`` becomes a ``SystemFailure`` that names the path and the cause.
"""

import contextlib
import errno
import io
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO, TypeAlias

from attnkit.errors import BrokenOutputError, SystemFailure, system_failure

Data: TypeAlias = bytes | bytearray | memoryview
_TEMPORARY = re.compile(r"(\.tmp-.+)-([0-9]{1,9})", re.DOTALL)
# O_EXCL and O_NOFOLLOW: a run folder may be untrusted, and a symbolic link in it must not redirect a write.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PACKED = (".gz", ".xz", ".bz2", ".zst")  #: suffixes of compressed output, in lower case
_KEPT = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@contextlib.contextmanager
def _os_errors(action: str, path: Path | str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise  # standard output was closed: not an error of this path
    except OSError as error:
        raise system_failure(action, path, error) from error


@contextlib.contextmanager
def _atomic_replace(path: Path, named: Path) -> Iterator[Path]:
    """Yield a temporary path: renamed to ``path`` on success, removed on failure."""
    temporary = _temporary(path)
    try:
        with _os_errors("write", named):
            prefix = temporary.name.rsplit("-", 1)[0]
            for entry in path.parent.iterdir():
                if (match := _TEMPORARY.fullmatch(entry.name)) and match[1] == prefix:
                    # Left by a process that has ended, or by this one.
                    try:
                        os.kill(pid := int(match[2]), 0)
                        stale = pid == os.getpid()
                    except OSError as error:
                        stale = isinstance(error, ProcessLookupError)
                    if stale:
                        _remove(entry)
        yield temporary
        with _os_errors("write", named):
            temporary.replace(path)
            _sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            _remove(temporary)
        raise


def write_bytes(path: Path, data: Data, mode: int = 0o666) -> None:
    """Write a file durably: a crash leaves either the old or the new content.

    The umask takes permissions from ``mode``.
    """
    with _atomic_replace(path, path) as temporary, _os_errors("write", path):
        _write_new(temporary, data, mode)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file durably; line ends are not converted."""
    write_bytes(path, encode(text))


def write_new_file(path: Path, data: Data) -> None:
    """Write and fsync a file inside an ``atomic_dir``; it must not exist yet."""
    with _os_errors("write", path):
        _write_new(path, data)


@contextlib.contextmanager
def create_exclusive(path: Path) -> Iterator[BinaryIO]:
    """Yield a new binary file inside an ``atomic_dir``, for streams; fsync at the end."""
    with _os_errors("write", path):
        raw = os.fdopen(os.open(path, _NEW, 0o666), "wb", buffering=1 << 20)
    with _flushed(path, raw, raw.close):
        yield raw


@contextlib.contextmanager
def anonymous_tempfile(folder: Path | None = None) -> Iterator[BinaryIO]:
    """Yield an anonymous temporary file, by default in the system's temporary folder."""
    with _os_errors("write in", place := folder or Path(tempfile.gettempdir())):
        raw = tempfile.TemporaryFile(dir=place, prefix=".tmp-", buffering=0)  # noqa: SIM115
    with raw, _os_errors("write in", place):
        yield raw


@contextlib.contextmanager
def temporary_dir() -> Iterator[Path]:
    """Yield a folder in the system's temporary folder, removed at the end."""
    with contextlib.ExitStack() as stack:
        with _os_errors("write in", Path(tempfile.gettempdir())):
            name = stack.enter_context(tempfile.TemporaryDirectory(prefix="attnkit-"))
        yield Path(name)


@contextlib.contextmanager
def atomic_dir(path: Path) -> Iterator[Path]:
    """Yield a temporary folder: renamed to ``path`` on success, removed on failure.

    All files and folders below it are fsynced before the rename. ``path`` must not exist or must be an empty folder.
    """
    with _atomic_replace(path, path) as temporary:
        with _os_errors("make the folder", path):
            temporary.mkdir()
        yield temporary
        with _os_errors("write", path):
            for parent, _, names in os.walk(temporary, topdown=False):
                for name in sorted(names):
                    _sync(Path(parent, name))
                _sync(Path(parent))


def open_output(path: Path | None) -> contextlib.AbstractContextManager[TextIO]:
    """Return a context for UTF-8 text output; ``path`` None is standard output.

    A regular file appears only if the block succeeds, compressed if the suffix of its name says so. Devices, pipes and
    paths below ``/dev`` (except ``/dev/shm``) or ``/proc`` are written directly. Raises ``BrokenOutputError`` if the
    reader of standard output has closed it.
    """
    if path is None:
        if sys.stdout is None:
            raise SystemFailure("cannot write standard output: it is closed", help="write to a file instead")
        with _os_errors("write", "standard output"):
            sys.stdout.flush()
        return _text(None, sys.stdout.buffer)
    with _os_errors("write", path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # /dev/stdout may be a regular file that the shell holds open: replacing that file would lose the output.
        top = path.absolute().parts[1:3]
        if (top[:1] in (("dev",), ("proc",)) and top[1:] != ("shm",)) or (path.exists() and not path.is_file()):
            return _text(path, os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), "wb"))
        return _output_file(path, path.resolve())


@contextlib.contextmanager
def _output_file(named: Path, goal: Path) -> Iterator[TextIO]:
    with _atomic_replace(goal, named) as temporary:
        with _os_errors("write", named):
            raw = os.fdopen(os.open(temporary, _NEW, 0o666), "wb")
        with _packed_text(named, raw) if named.suffix.lower() in PACKED else _text(named, raw) as stream:
            yield stream


@contextlib.contextmanager
def _packed_text(path: Path, raw: BinaryIO) -> Iterator[TextIO]:
    from attnkit.io.compression import open_packer

    with (
        _flushed(path, raw, raw.close),
        io.TextIOWrapper(open_packer(path, raw), "utf-8", "backslashreplace", "\n") as stream,
    ):
        yield stream


@contextlib.contextmanager
def _text(path: Path | None, raw: BinaryIO) -> Iterator[TextIO]:
    """Yield a text stream over ``raw``; at the end, close all but standard output."""
    stream = io.TextIOWrapper(raw, "utf-8", "backslashreplace", "\n", line_buffering=raw.isatty())
    with _flushed(path, stream, stream.close if path else stream.detach):
        yield stream


@contextlib.contextmanager
def _flushed(path: Path | None, stream: IO[Any], end: Callable[[], object]) -> Iterator[None]:
    """Flush and fsync a stream if the block succeeds; call ``end`` in any case."""
    try:
        yield
        stream.flush()
        if path and stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            os.fsync(stream.fileno())
    except OSError as error:
        if error.filename is not None:  # raised by another file that the block uses
            raise
        if path is None and isinstance(error, BrokenPipeError):
            raise BrokenOutputError("standard output was closed") from error
        raise system_failure("write", path or "standard output", error) from error
    finally:
        with contextlib.suppress(OSError):
            end()


def append_text(path: Path, text: str) -> None:
    """Append UTF-8 text as ``append_bytes`` appends data."""
    append_bytes(path, encode(text))


@contextlib.contextmanager
def open_for_child(path: Path) -> Iterator[int]:
    """Open a file to which a child process appends its output."""
    with _os_errors("write", path), _descriptor(path, _KEPT | os.O_CREAT | os.O_APPEND) as descriptor:
        yield descriptor


def encode(text: str) -> bytes:
    """Return the UTF-8 bytes that are written for a text."""
    return text.encode("utf-8", errors="backslashreplace")


def append_bytes(path: Path, data: bytes) -> None:
    """Append data, not durably (see ``sync``); undo a failed append if possible."""
    with _os_errors("write", path), _descriptor(path) as descriptor:
        size = os.lseek(descriptor, 0, os.SEEK_END)
        try:
            _write_all(descriptor, data)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, size)
            raise


def set_attribute(path: Path, name: str, value: bytes) -> None:
    """Set an extended attribute of a file, durably, where its file system has them.

    Nothing may rely on it: copies of the file lack it.
    """
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError), _descriptor(path, _KEPT) as descriptor:
        os.setxattr(descriptor, f"user.{name}", value)
        os.fsync(descriptor)


def open_in_place(path: Path) -> int:
    """Open or create a file for in-place writes; the caller closes the descriptor."""
    with _os_errors("write", path):
        return os.open(path, _KEPT | os.O_CREAT, 0o666)


def write_in_place(descriptor: int, data: bytes) -> None:
    """Overwrite the start of a file in one system call, which a kill cannot split."""
    os.pwrite(descriptor, data, 0)


def truncate(path: Path, size: int) -> None:
    """Truncate a file to ``size`` bytes, durably; a shorter file does not change."""
    with _os_errors("truncate", path), _descriptor(path, _KEPT) as descriptor:
        if os.fstat(descriptor).st_size > size:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)


def sync(path: Path) -> None:
    """Sync appended data to disk, to survive a power loss."""
    with _os_errors("write", path):
        _sync(path)
        _sync(path.parent)


def make_dirs(path: Path) -> None:
    """Create a folder and its missing parents, durably."""
    with _os_errors("make the folder", path):
        for folder in reversed([folder for folder in (path, *path.parents) if not folder.is_dir()]):
            folder.mkdir(exist_ok=True)
            _sync(folder.parent)


def move(source: Path, goal: Path) -> None:
    """Rename a file or folder on one file system, durably; ``goal`` must not exist."""
    with _os_errors("move", source):
        if os.path.lexists(goal):
            raise FileExistsError(errno.EEXIST, f"{goal} exists")
        source.rename(goal)
        _sync(goal.parent)
        _sync(source.parent)


def remove_tree(path: Path) -> None:
    """Remove a file or folder if it exists; a crash never leaves ``path`` incomplete."""
    temporary = _temporary(path)
    with _os_errors("remove", path):
        if os.path.lexists(path):
            _remove(temporary)
            path.rename(temporary)
            _sync(path.parent)
            _remove(temporary)


def is_temporary(name: str) -> bool:
    """Return whether a file of this name is one that an atomic write had begun."""
    return _TEMPORARY.fullmatch(name) is not None


def remove_stale_temporaries(folder: Path) -> None:
    """Remove all temporaries in a folder; the caller must hold the folder's lock."""
    with _os_errors("clean", folder):
        for entry in folder.iterdir():
            if is_temporary(entry.name):
                _remove(entry)


@contextlib.contextmanager
def _descriptor(path: Path, flags: int = _KEPT | os.O_CREAT, mode: int = 0o666) -> Iterator[int]:
    descriptor = os.open(path, flags, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _temporary(path: Path) -> Path:
    # The name is truncated, since file systems allow 255 bytes.
    return path.parent / f".tmp-{os.fsdecode(os.fsencode(path.name)[:200])}-{os.getpid()}"


def _write_new(path: Path, data: Data, mode: int = 0o666) -> None:
    with _descriptor(path, _NEW, mode) as descriptor:
        _write_all(descriptor, data)
        os.fsync(descriptor)


def _write_all(descriptor: int, data: Data) -> None:
    view = memoryview(data).cast("B")  # one call writes at most 2 GiB; slices of a view copy nothing
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(path: Path) -> None:
    with _descriptor(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network and user-space file systems cannot sync a folder; they order renames themselves.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
