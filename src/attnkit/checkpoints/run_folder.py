"""Run folders: detection, locking, checkpoints (save, rotate, find) and logs."""

import contextlib
import math
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from attnkit.checkpoints import checkpoint, logs
from attnkit.checkpoints.adapters import BASE, is_adapter, whole_weights
from attnkit.checkpoints.checkpoint import Checkpoint, Content, open_checkpoint, replaced_path, write_checkpoint
from attnkit.checkpoints.logs import Status
from attnkit.errors import RunError, UsageError, system_failure
from attnkit.io import atomic, lock
from attnkit.io.atomic import Data
from attnkit.io.lock import Lock, take_lock
from attnkit.io.safe_read import is_file_fault, read_regular_file

_ELSEWHERE = "choose a new or empty folder"
_MAX_NAME = 100  # maximum size of the file ``best``, in bytes
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
        raise RunError(f"no such run folder: {path}", help="check the spelling, or train one: attnkit train -o RUN")
    if not path.is_dir():
        raise RunError(f"{path} is a file, not a run folder", help="give the folder written by attnkit train")
    if (path / checkpoint.FILE_NAME).exists() and path.resolve().parent.name == "checkpoints":
        run = path.resolve().parent.parent
        raise RunError(f"{path} is a checkpoint, not a run folder", help=f"name {run} and add --checkpoint {path.name}")
    if not is_run(path):
        help = "give the folder written by attnkit train"
        if (path / "config.json").exists():  # as transformers writes it
            help = f"import it first: attnkit import huggingface {path} -o RUN"
        raise RunError(f"{path} is not a run folder", help=help)


def check_target_dir(path: Path) -> None:
    """Raise ``RunError`` unless a run can start or resume at ``path``."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise RunError(f"{path} is not a folder", help=_ELSEWHERE)
    for name in ("checkpoints", "data", BASE):
        check_not_symlink(path / name)
    try:
        # A process killed at its start leaves at most an empty lock file.
        empty = all(entry.name == lock.FILE_NAME for entry in path.iterdir())
    except OSError as error:
        raise system_failure("read", path, error) from error
    if not empty and not is_run(path):
        raise RunError(f"{path} contains other files and is not a run folder", help=_ELSEWHERE)


def check_not_symlink(folder: Path) -> None:
    """Raise ``RunError`` if ``folder`` is a symbolic link or a file."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):  # never write outside the run folder
        raise RunError(f"{folder} is not a folder of this run", help="replace the file or link with the folder")


def removable(
    steps: Collection[int],
    protected: Collection[int],
    keep_last: int,
    keep_best: int,
    metrics: Mapping[int, float],
    lower_is_better: bool = False,
) -> list[int]:
    """Return the steps to remove, ascending; the newest and protected ones are kept.

    ``metrics`` maps steps to scores; of equal scores, the newer is better. A step without a finite score is never best.

    >>> removable([1, 2, 3, 4], [], keep_last=1, keep_best=1, metrics={1: 30.0, 2: 31.5})
    [1, 3]
    """
    sign = -1.0 if lower_is_better else 1.0
    scored = [step for step in steps if math.isfinite(metrics.get(step, math.nan))]
    best = sorted(scored, key=lambda step: (sign * metrics[step], step), reverse=True)
    last = sorted(steps, reverse=True)
    return sorted({*steps} - {*last[: max(keep_last, 1)], *best[: max(keep_best, 0)], *protected})


class RunFolder:
    """A run folder, which need not exist yet; the constructor accesses no files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints_path = path / "checkpoints"
        self.data_path = path / "data"
        self.metrics_path = path / "metrics.jsonl"  #: reproducible records: no times or host names
        self.timings_path = path / "timings.jsonl"  #: training time, not reproducible
        self._saved_step: int | None = None

    # --- locking

    def lock(self) -> Lock:
        """Create the folder if needed, lock it, and clean up after a killed process.

        Raises ``SystemFailure`` if another process holds the lock, ``RunError`` if the folder has other content.
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
            # Finish interrupted replacements: restore an old checkpoint if its successor is missing, else remove it.
            for name, path in self.list_checkpoints():
                if not path.name.endswith(checkpoint.REPLACED):
                    continue
                successor = path.with_name(name)
                if not os.path.lexists(successor):
                    atomic.move(path, successor)
                    continue
                with contextlib.suppress(RunError):  # if the successor is damaged, keep both
                    open_checkpoint(successor, name).verify()
                    atomic.remove_tree(path)
        except BaseException:
            held.release()
            raise
        return held

    def move_aside(self) -> Path:
        """Rename an unused run to the first free RUN.old-N; return the new path."""
        with self.lock():
            number = 1
            while (goal := self.path.with_name(f"{self.path.name}.old-{number}")).exists():
                number += 1
            atomic.move(self.path, goal)
        return goal

    # --- saving

    def save(self, step: int, contents: Mapping[str, Content]) -> Checkpoint:
        """Save a checkpoint atomically; make it and all metrics so far durable."""
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
        """Save the averaged checkpoint atomically, replacing an earlier one."""
        atomic.remove_stale_temporaries(self.path)
        return write_checkpoint(self.path / "averaged", "averaged", step, contents)

    def save_base(self, contents: Mapping[str, Content]) -> Checkpoint:
        """Save the weights that an adapter adapts atomically, replacing earlier ones."""
        check_not_symlink(self.path / BASE)
        atomic.remove_stale_temporaries(self.path)
        return write_checkpoint(self.path / BASE, BASE, 0, contents)

    def set_best(self, name: str) -> None:
        """Record the best checkpoint by name: "step-N" or "averaged", which must exist."""
        self._open(name)
        atomic.write_text(self.path / "best", name + "\n")

    def apply_retention(
        self, keep_last: int, keep_best: int, metrics: Mapping[int, float], lower_is_better: bool = False
    ) -> list[str]:
        """Remove all but the newest and the best checkpoints; return the removed names.

        ``metrics`` maps steps to scores. Call it after a save. The newest save and the checkpoint named in ``best`` are
        always kept. Checkpoints with more steps are damaged leftovers that were skipped on resume; they are removed.
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

    # --- discovery

    def list_checkpoints(self) -> list[tuple[str, Path]]:
        """Return (name, folder) of every checkpoint, damaged or not, the average last.

        A checkpoint whose replacement was interrupted by a crash follows its successor, under the same name.
        """
        found = [(f"step-{step}", path) for step, path in self._found()]
        averaged = self.path / "averaged"
        return found + [("averaged", path) for path in (averaged, replaced_path(averaged)) if os.path.lexists(path)]

    def steps(self) -> list[int]:
        """Return the steps with a checkpoint, damaged or not, in ascending order."""
        return sorted({step for step, _ in self._found()})

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """Return the newest intact checkpoint, and a warning per damaged newer one.

        The checkpoint is None if nothing was saved yet. Raises ``RunError`` if none of the saved checkpoints is intact,
        or if all are missing although other files, such as the status, show that some were saved.
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
        """Return the checkpoint "best", "last", "averaged" or "step-N", and warnings.

        Without a name, it is the best if set, else the newest intact one. Files are verified when they are read.
        Raises ``RunError`` if the checkpoint is missing or damaged, ``UsageError`` for any other name.
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

    def adapted(self, name: str | None, adapter: Path | None) -> tuple[Checkpoint, list[str]]:
        """Return a checkpoint with the adapter of another run on its weights, if given.

        Of a checkpoint that is an adapter itself, the weights are those of its base. Raises as ``checkpoint``, and
        ``RunError`` if the other run has no adapter, or one that was trained on other weights.
        """
        chosen, warnings = self.checkpoint(name)
        if adapter is None:
            return chosen, warnings
        base = whole_weights(chosen)
        other, more = RunFolder(adapter).checkpoint()
        if not is_adapter(other):
            raise RunError("this run has no adapter", where=str(adapter), help="train one: --set adapter.kind=lora")
        other = replace(other, base=base)
        whole_weights(other)  # raises if the adapter belongs to other weights
        return other, [*warnings, *more]

    def best_name(self) -> str | None:
        """Return the name in the file ``best``; None if missing, ``RunError`` if damaged."""
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
            pass  # not a regular file, or too large: as invalid as a wrong name
        if text == "averaged" or STEP.fullmatch(text):
            return text
        raise RunError("the file naming the best checkpoint is damaged", where=str(path), help="--checkpoint last")

    # --- logs, status and copies

    @property
    def metrics_size(self) -> int:
        """Return the size of ``metrics.jsonl``, recorded in checkpoints for truncation."""
        return self.metrics_path.stat().st_size if self.metrics_path.exists() else 0

    def truncate_metrics(self, size: int) -> list[str]:
        """Truncate ``metrics.jsonl`` to ``size`` bytes; return a warning if it is shorter."""
        if self.metrics_size > size:
            atomic.truncate(self.metrics_path, size)
        missing = size - self.metrics_size
        return [f"{self.metrics_path} is {missing} bytes shorter than its checkpoint recorded"] if missing > 0 else []

    def write_status(self, status: Status) -> None:
        """Write ``status.json`` atomically and durably."""
        atomic.write_text(self.path / logs.STATUS_NAME, status.model_dump_json(indent=1) + "\n")

    def write_copy(self, name: str, data: Data) -> None:
        """Write a file for users to the root: configuration, vocabulary or ``README.md``."""
        atomic.write_bytes(self.path / name, data)

    # --- internals

    def _found(self) -> list[tuple[int, Path]]:
        """Return (step, path) of every checkpoint folder, newest first.

        A folder that is being replaced follows its successor. Raises ``RunError`` if checkpoints/ is a symbolic link.
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
            self._found()  # raises if checkpoints/ is a symbolic link
        path = self.path / "averaged" if name == "averaged" else self.checkpoints_path / name
        for candidate in (path, replaced_path(path)):
            if os.path.lexists(candidate):
                return open_checkpoint(candidate, name)
        held = ", ".join(f"step-{step}" for step in self.steps())
        raise RunError(f"{self.path} has no checkpoint {name}", help=f"available: {held or 'none'}")
