"""Output folder of a resumable job: its own files, a record, a report and a lock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.io.lock import FILE_NAME as LOCK
from attnkit.io.lock import check_not_in_use, take_lock

PROGRESS = "progress.json"  #: record of an unfinished job
REPORT = "report.json"


@contextmanager
def open_job_folder(folder: Path, outputs: Collection[str], *, overwrite: bool = False) -> Iterator[None]:
    """Check and lock the folder of a job; it is made if it does not exist.

    Nothing is written into a folder with other files, not even the lock. With ``overwrite``, a finished job starts
    again, and its results stay until new ones take their places.

    Args:
        folder: Folder of the outputs, the record and the report.
        outputs: Names of the files that the job writes besides these.
        overwrite: Whether to start a finished or unfinished job again.

    Raises:
        SystemFailure: Another process holds the lock.
        UsageError: The folder holds other files, or is finished.
    """
    check_not_in_use(folder)
    _check_own(folder, outputs, overwrite)
    atomic.make_dirs(folder)
    with take_lock(folder):
        try:
            atomic.remove_stale_temporaries(folder)  # of a job that was killed while it wrote
            _check_own(folder, outputs, overwrite)  # another process may have finished meanwhile
            if overwrite:
                for name in (PROGRESS, REPORT, *(f"{name}.part" for name in outputs)):
                    atomic.remove_tree(folder / name)
            yield
        finally:
            atomic.remove_tree(folder / LOCK)


def check_not_inside(paths: Sequence[Path], folder: Path) -> None:
    """Raise ``UsageError`` if an input lies in the output folder."""
    for path in paths:
        if path.is_file() and path.resolve().parent == folder.resolve():
            raise UsageError(f"{path} lies in the output folder", help="choose another folder with -o")


def _check_own(folder: Path, outputs: Collection[str], overwrite: bool) -> None:
    """Raise ``UsageError`` unless a folder is new or of an earlier job of this kind."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise UsageError(f"{folder} is a file", help="choose a folder with -o")
    if not _is_own(folder, outputs):
        raise UsageError(f"{folder} holds other files", help="choose another folder with -o")
    if not overwrite and (folder / REPORT).is_file() and not (folder / PROGRESS).is_file():
        raise UsageError(f"{folder} is finished", help="add --overwrite, or choose another folder with -o")


def _is_own(folder: Path, outputs: Collection[str]) -> bool:
    """Return whether a folder holds only what the job writes."""
    own = {PROGRESS, REPORT, LOCK, *outputs, *(f"{name}.part" for name in outputs)}
    found = {entry.name for entry in folder.iterdir() if not atomic.is_temporary(entry.name)}
    begun = any((folder / name).is_file() for name in (PROGRESS, REPORT))
    # A job killed at its very start leaves empty parts, and its lock.
    empty = all(name == LOCK or (name.endswith(".part") and not (folder / name).stat().st_size) for name in found)
    return found <= own and (begun or empty)
