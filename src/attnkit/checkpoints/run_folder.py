"""A run folder: recognize it, find, save and rotate checkpoints, write its logs."""

import contextlib
import math
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from attnkit.checkpoints import checkpoint, lock, logs
from attnkit.checkpoints.checkpoint import Checkpoint, Content, open_checkpoint, replaced_path, write_checkpoint
from attnkit.checkpoints.lock import Lock, take_lock
from attnkit.checkpoints.logs import Status
from attnkit.errors import RunError, UsageError, system_failure
from attnkit.io import atomic
from attnkit.io.atomic import Data
from attnkit.io.safe_read import is_file_fault, read_regular_file

_ELSEWHERE = "choose a new or empty folder"
_MAX_NAME = 100  # bytes of the file that names the best
STEP: Final = re.compile(r"step-(0|[1-9][0-9]{0,15})")


def is_run(path: Path) -> bool:
    """Return whether a folder is a run folder; it need not have a checkpoint yet."""
    if not path.is_dir():
        return False
    folders = [path / "averaged", *(path / "checkpoints").glob("step-*")]
    has_checkpoint = any((folder / checkpoint.FILE_NAME).exists() for folder in folders)
    return has_checkpoint or lock.read_owner(path) is not None or logs.read_status(path) is not None


def check_is_run(path: Path) -> None:
    """Raise ``RunError`` unless ``path`` is a run folder."""
    if not os.path.lexists(path):
        raise RunError(f"no run folder {path}", help="check the spelling, or train one: attnkit train -o RUN")
    if not path.is_dir():
        raise RunError(f"{path} is a file, not a run folder", help="give the folder written by attnkit train")
    if (path / checkpoint.FILE_NAME).exists() and path.resolve().parent.name == "checkpoints":
        run = path.resolve().parent.parent
        raise RunError(f"{path} is a checkpoint, not a run folder", help=f"name {run} and add --checkpoint {path.name}")
    if not is_run(path):
        raise RunError(f"{path} is not a run folder", help="give the folder written by attnkit train")


def check_target_dir(path: Path) -> None:
    """Raise ``RunError`` if ``path`` holds something else than a run, so that none can start or resume there."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise RunError(f"{path} is not a folder", help=_ELSEWHERE)
    for name in ("checkpoints", "data"):
        check_not_symlink(path / name)
    try:
        # A process killed while it began leaves no more than an empty lock file.
        empty = all(entry.name == lock.FILE_NAME for entry in path.iterdir())
    except OSError as error:
        raise system_failure("read", path, error) from error
    if not empty and not is_run(path):
        raise RunError(f"{path} contains other files and is not a run folder", help=_ELSEWHERE)


def check_not_symlink(folder: Path) -> None:
    """Raise ``RunError`` if ``folder`` is a symbolic link or a file; a run never writes outside its own folder."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise RunError(f"{folder} is not a folder of this run", help="replace the file or symbolic link by the folder")


def removable(
    steps: Collection[int],
    protected: Collection[int],
    keep_last: int,
    keep_best: int,
    metrics: Mapping[int, float],
    lower_is_better: bool = False,
) -> list[int]:
    """Return the steps that may be removed, oldest first; never the newest nor a protected one.

    Of equal scores (``metrics``: step to score) the newer is the better. A step without a finite score is never best.

    >>> removable([1, 2, 3, 4], [], keep_last=1, keep_best=1, metrics={1: 30.0, 2: 31.5})
    [1, 3]
    """
    sign = -1.0 if lower_is_better else 1.0
    scored = [step for step in steps if math.isfinite(metrics.get(step, math.nan))]
    best = sorted(scored, key=lambda step: (sign * metrics[step], step), reverse=True)
    last = sorted(steps, reverse=True)
    return sorted({*steps} - {*last[: max(keep_last, 1)], *best[: max(keep_best, 0)], *protected})


class RunFolder:
    """The folder at ``path``, which need not exist yet. The constructor touches nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints_path = path / "checkpoints"
        self.data_path = path / "data"
        self.metrics_path = path / "metrics.jsonl"  #: reproducible records: no times or host names
        self.timings_path = path / "timings.jsonl"  #: what the clock says
        self._saved_step: int | None = None

    # --- who may write here

    def lock(self) -> Lock:
        """Create the folder if needed, lock it for this process, and remove leftovers of a killed one.

        Raises ``SystemFailure`` at once when another process holds it, ``RunError`` when something else lies here.
        """
        check_target_dir(self.path)
        atomic.make_dirs(self.path)
        held = take_lock(self.path)
        try:
            # Before the first save, the lock file alone marks the folder as a run.
            atomic.sync(self.path / lock.FILE_NAME)
            for folder in (self.path, self.checkpoints_path, self.data_path):
                if folder.is_dir():
                    atomic.remove_stale_temporaries(folder)
            # End what a crash interrupted: a checkpoint whose successor is not there gets its name back, others go.
            for name, path in self.list_checkpoints():
                if not path.name.endswith(checkpoint.REPLACED):
                    continue
                successor = path.with_name(name)
                if not os.path.lexists(successor):
                    atomic.move(path, successor)
                    continue
                with contextlib.suppress(RunError):  # a damaged successor: then both stay
                    open_checkpoint(successor, name).verify()
                    atomic.remove_tree(path)
        except BaseException:
            held.release()
            raise
        return held

    def move_aside(self) -> Path:
        """Rename the run to RUN.old-1, or the next free number, and return that path. Nothing may be using it."""
        with self.lock():
            number = 1
            while (goal := self.path.with_name(f"{self.path.name}.old-{number}")).exists():
                number += 1
            atomic.move(self.path, goal)
        return goal

    # --- saving

    def save(self, step: int, contents: Mapping[str, Content]) -> Checkpoint:
        """Save a checkpoint, all or nothing; afterwards it and all metrics appended so far survive a power cut."""
        check_not_symlink(self.checkpoints_path)
        atomic.make_dirs(self.checkpoints_path)
        atomic.remove_stale_temporaries(self.checkpoints_path)
        if self.metrics_path.exists():
            atomic.sync(self.metrics_path)
        name = f"step-{step}"
        checkpoint = write_checkpoint(self.checkpoints_path / name, name, step, contents)
        self._saved_step = step
        return checkpoint

    def save_averaged(self, step: int, contents: Mapping[str, Content]) -> Checkpoint:
        """Save the averaged checkpoint beside the others, all or nothing, in place of an earlier one."""
        atomic.remove_stale_temporaries(self.path)
        return write_checkpoint(self.path / "averaged", "averaged", step, contents)

    def set_best(self, name: str) -> None:
        """Name the best checkpoint: "step-N" or "averaged", which must be there."""
        self._open(name)
        atomic.write_text(self.path / "best", name + "\n")

    def apply_retention(
        self, keep_last: int, keep_best: int, metrics: Mapping[int, float], lower_is_better: bool = False
    ) -> list[str]:
        """Remove all checkpoints but the newest and the best few by score (step to score); return their names.

        Call it after a save. The newest save and the one that ``best`` names always stay. Checkpoints beyond the newest
        save are damaged leftovers, which discovery passed over: they count for nothing and go.
        """
        present = sorted({step for step, _ in self._found()})
        newest = present[-1] if self._saved_step is None and present else self._saved_step
        if newest is None:
            return []
        best = None
        with contextlib.suppress(RunError):
            best = self.best_name()
        protected = [newest, *(int(found[1]) for found in [STEP.fullmatch(best or "")] if found)]
        current = [step for step in present if step <= newest]
        old = removable(current, protected, keep_last, keep_best, metrics, lower_is_better)
        going = [*old, *(step for step in present if step > newest)]
        for step in going:
            path = self.checkpoints_path / f"step-{step}"
            atomic.remove_tree(replaced_path(path))
            atomic.remove_tree(path)
        return [f"step-{step}" for step in going]

    # --- finding

    def list_checkpoints(self) -> list[tuple[str, Path]]:
        """Return name and folder of every checkpoint, the average last, damaged or not.

        One that was being replaced when a process died comes after its successor, by the same name.
        """
        found = [(f"step-{step}", path) for step, path in self._found()]
        averaged = self.path / "averaged"
        return found + [("averaged", path) for path in (averaged, replaced_path(averaged)) if os.path.lexists(path)]

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, damaged or not, ascending."""
        return sorted({step for step, _ in self._found()})

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest checkpoint of which every byte verifies, and a warning for each newer one passed over.

        None when nothing was saved yet. Raises ``RunError`` when checkpoints were saved and none can be used: what
        lies beside them, the status above all, shows that they were.
        """
        warnings: list[str] = []
        for step, path in self._found():
            try:
                checkpoint = open_checkpoint(path, f"step-{step}")
                checkpoint.verify()
            except RunError as error:
                warnings.append(f"{error.what} ({error.where})")
            else:
                return checkpoint, warnings
        status = logs.read_status(self.path)
        was_trained = status is not None and status.step > 0
        if warnings or was_trained or any((self.path / name).exists() for name in ("best", "averaged")):
            what = warnings[0] if warnings else f"the checkpoints of {self.path} are missing"
            raise RunError(
                f"no checkpoint can be used: {what}",
                where=str(self.checkpoints_path),
                help="restore checkpoints/ from a backup, or start over with --overwrite (the old run is renamed)",
            )
        return None, warnings

    def checkpoint(self, name: str | None = None) -> tuple[Checkpoint, list[str]]:
        """Return the checkpoint called "best", "last", "averaged" or "step-N", and warnings.

        Without a name: ``best`` if it is set, else the newest that verifies. Files are verified as they are read.
        Raises ``RunError`` when it is missing or damaged, ``UsageError`` for any other name.
        """
        check_is_run(self.path)
        if name is None:
            name = "best" if (self.path / "best").exists() else "last"
        if name == "last":
            newest, warnings = self.newest()
            if newest is None:
                raise RunError(f"{self.path} has no checkpoint yet", help="train until the first checkpoint is saved")
            return newest, warnings
        if name == "best":
            name = self.best_name()
            if name is None:
                raise RunError(f"{self.path} has no best checkpoint yet", help="add --checkpoint last")
        return self._open(name), []

    def best_name(self) -> str | None:
        """Return what the file ``best`` names, None when there is none. Raises ``RunError`` if it is damaged."""
        path = self.path / "best"
        text = ""
        try:
            text = read_regular_file(path, _MAX_NAME).decode("utf-8", errors="replace").removesuffix("\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            if not is_file_fault(error):
                raise system_failure("read", path, error) from error
        except ValueError:
            pass  # as senseless as a text that is not a name
        if text == "averaged" or STEP.fullmatch(text):
            return text
        raise RunError("the file naming the best checkpoint is damaged", where=str(path), help="--checkpoint last")

    # --- what people and programs watch

    @property
    def metrics_size(self) -> int:
        """Bytes of ``metrics.jsonl``; a checkpoint records it, so that a resume can cut the log there."""
        return self.metrics_path.stat().st_size if self.metrics_path.exists() else 0

    def truncate_metrics(self, size: int) -> list[str]:
        """Cut ``metrics.jsonl`` to the bytes a checkpoint recorded (0 for a new start); warn when some are missing."""
        if self.metrics_size > size:
            atomic.truncate(self.metrics_path, size)
        missing = size - self.metrics_size
        return [f"{self.metrics_path} is {missing} bytes shorter than its checkpoint recorded"] if missing > 0 else []

    def write_status(self, status: Status) -> None:
        """Write ``status.json`` whole and durably."""
        atomic.write_text(self.path / logs.STATUS_NAME, status.model_dump_json(indent=1) + "\n")

    def write_copy(self, name: str, data: Data) -> None:
        """Write a file at the root for people: a copy of the configuration or vocabulary, or the card ``README.md``."""
        atomic.write_bytes(self.path / name, data)

    # --- inside

    def _found(self) -> list[tuple[int, Path]]:
        """Return step and path of every checkpoint folder, newest first, one being replaced after its successor.

        Raises ``RunError`` where the folder they lie in is a link: what it leads to is not part of this run.
        """
        found: list[tuple[int, Path]] = []
        try:
            check_not_symlink(self.checkpoints_path)
            for path in self.checkpoints_path.iterdir():
                if match := STEP.fullmatch(path.name.removesuffix(checkpoint.REPLACED)):
                    found.append((int(match[1]), path))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise system_failure("read", self.checkpoints_path, error) from error
        return sorted(found, key=lambda pair: (-pair[0], pair[1].name))

    def _open(self, name: str) -> Checkpoint:
        if name != "averaged" and not STEP.fullmatch(name):
            raise UsageError(f"'{name}' is not a checkpoint", help="choose best, last, averaged or step-N")
        if name != "averaged":
            self._found()  # which refuses a linked folder
        path = self.path / "averaged" if name == "averaged" else self.checkpoints_path / name
        for candidate in (path, replaced_path(path)):
            if os.path.lexists(candidate):
                return open_checkpoint(candidate, name)
        held = ", ".join(f"step-{step}" for step in self.steps())
        raise RunError(f"{self.path} has no checkpoint {name}", help=f"available: {held or 'none'}")
