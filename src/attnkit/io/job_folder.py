"""Output folder of a resumable job: its own files, a record, a report and a lock."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnkit.errors import RunError, UsageError
from attnkit.io import atomic, safe_read
from attnkit.io.lock import FILE_NAME as LOCK
from attnkit.io.lock import check_not_in_use, take_lock

PROGRESS = "progress.json"  #: record of an unfinished job
REPORT = "report.json"
MAX_REPORT = 1 << 24  #: bytes of a report
MAX_SHOWN = 60  #: characters of a changed setting, old and new, that an error shows


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


def is_finished(folder: Path) -> bool:
    """Return whether a folder has the report of a job, and no record of its progress."""
    return (folder / REPORT).is_file() and not (folder / PROGRESS).is_file()


def read_finished(folder: Path, outputs: Collection[str], settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the counts in the report of a finished job; None if the folder has none.

    Args:
        folder: Folder of a job.
        outputs: Names of the files that the job writes.
        settings: What the result depends on, as JSON values; the report has them beside its counts.

    Raises:
        RunError: The report is damaged, or an output is missing.
        UsageError: The job had other input or settings.
    """
    if not is_finished(folder) or not _is_own(folder, outputs):
        return None
    again = "add --overwrite to start again"
    try:
        report = safe_read.parse_json(safe_read.read_regular_file(folder / REPORT, MAX_REPORT))
        if not isinstance(report, dict):
            raise ValueError("not an object")
    except (OSError, ValueError) as error:
        raise RunError(f"{folder / REPORT} is damaged", help=again) from error
    changed = []
    for key, value in json.loads(json.dumps(settings)).items():
        if key not in report or report[key] != value:
            shown = f"{key}: {json.dumps(report.get(key))} -> {json.dumps(value)}"
            changed.append(shown if len(shown) <= MAX_SHOWN else key)
    if changed:
        what = f"{folder} is finished, with other input or settings: {', '.join(changed)}"
        raise UsageError(what, help="add --overwrite, or choose another folder with -o")
    for name in outputs:
        if not (folder / name).is_file():
            raise RunError(f"{folder} is finished, but {name} is missing", help=again)
    return {key: value for key, value in report.items() if key not in settings}


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
    if not overwrite and is_finished(folder):
        raise UsageError(f"{folder} is finished", help="add --overwrite, or choose another folder with -o")


def _is_own(folder: Path, outputs: Collection[str]) -> bool:
    """Return whether a folder holds only what the job writes."""
    own = {PROGRESS, REPORT, LOCK, *outputs, *(f"{name}.part" for name in outputs)}
    found = {entry.name for entry in folder.iterdir() if not atomic.is_temporary(entry.name)}
    begun = any((folder / name).is_file() for name in (PROGRESS, REPORT))
    # A job killed at its very start leaves empty parts, and its lock.
    empty = all(name == LOCK or (name.endswith(".part") and not (folder / name).stat().st_size) for name in found)
    return found <= own and (begun or empty)
