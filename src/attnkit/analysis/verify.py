"""Verification of a run folder: checksums, consistency, finite weights; read-only."""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnkit.checkpoints import logs
from attnkit.checkpoints.checkpoint import REPLACED, Checkpoint, open_checkpoint
from attnkit.checkpoints.logs import read_status
from attnkit.checkpoints.run_folder import RunFolder, check_is_run
from attnkit.config import dump_yaml, parse_yaml, validate
from attnkit.data.prepared_dir import read_index
from attnkit.engine.checkpoint_metadata import MAX_CONFIG_BYTES, TEXT_FILES, read_run_config, read_state
from attnkit.engine.resolve import differences
from attnkit.engine.task import task_of
from attnkit.errors import DataError, RunError, UsageError
from attnkit.io.lock import lock_holder
from attnkit.io.plain_data import PlainResult
from attnkit.io.safe_read import find_mismatches, read_regular_file
from attnkit.text.vocabulary_schema import MAX_BYTES

_ATTEMPTS = 3  # at reading files that another process removes or replaces


@dataclass(frozen=True)
class CheckResult:
    """Result of checking one part of a run folder."""

    name: str
    good: bool
    text: str  #: summary of the content, or the problem


@dataclass(frozen=True)
class VerificationReport(PlainResult):
    """Result of verifying a run folder."""

    path: Path
    things: list[CheckResult]
    newest: str | None  #: newest valid checkpoint
    user: str | None  #: process that holds the lock

    @property
    def n_bad(self) -> int:
        """Return the number of damaged parts."""
        return sum(not thing.good for thing in self.things)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as ``attnkit verify --json`` does."""
        found = {"run": str(self.path), "good": not self.n_bad, "newest": self.newest, "in_use": self.user}
        return {**found, "things": super().to_dict()["things"]}


def verify_runs(paths: Sequence[Path]) -> Iterator[VerificationReport]:
    """Verify runs lazily; raise ``RunError`` at once if a path is not a run folder."""
    for path in paths:
        check_is_run(path)
    return map(verify_run, paths)


def verify_run(path: Path) -> VerificationReport:
    """Verify a run; raise ``RunError`` if it is not one or checkpoints/ is a link."""
    check_is_run(path)
    for _ in range(_ATTEMPTS - 1):
        with contextlib.suppress(RunError):  # the newest checkpoint was rotated away meanwhile: try again
            return _verify_once(path)
    return _verify_once(path)


def _verify_once(path: Path) -> VerificationReport:
    folder = RunFolder(path)
    user = lock_holder(path)
    checked = [_verify_checkpoint(*named) for named in folder.list_checkpoints()]
    good = [checkpoint for _, checkpoint in checked if checkpoint is not None]
    newest = max((one for one in good if one.name != "averaged"), key=lambda one: one.step, default=None)
    things = [thing for part, _ in checked for thing in part]
    if not folder.steps():
        lost = any(os.path.lexists(path / name) for name in ("best", "averaged"))
        things.append(CheckResult("checkpoints", not lost, "all missing" if lost else "none saved yet"))
    things.append(_best(folder, [one.name for one in good], newest, in_use=user is not None))
    things += _logs(folder, newest)
    things.append(_status(folder, in_use=user is not None))
    things += _copies(folder, newest)
    things += _confidence(folder)
    things.append(_data(folder))
    return VerificationReport(path, things, newest.name if newest else None, user)


def _verify_checkpoint(name: str, path: Path) -> tuple[list[CheckResult], Checkpoint | None]:
    """Return the results for a checkpoint, and the checkpoint if it is intact."""
    label = path.name if path.name.endswith(REPLACED) else name
    wrong: list[str] = []
    for _ in range(_ATTEMPTS):
        before, checkpoint, wrong = _identity(path), None, []
        try:
            checkpoint = open_checkpoint(path, name)
            wrong += (fault.what for fault in checkpoint.find_mismatches())
            if not wrong:  # the checksums match
                config = read_run_config(checkpoint)
                wrong += task_of(config).find_errors(checkpoint, config)
        except (RunError, DataError, UsageError) as error:
            wrong.append(error.what)
        if not wrong and checkpoint is not None:
            files = checkpoint.manifest.files
            text = f"{len(files)} files, {sum(entry.size for entry in files.values()) / 1e6:,.1f} MB"
            return [CheckResult(label, True, text)], checkpoint
        now = _identity(path)
        if now is None:
            return [CheckResult(label, True, "was deleted by rotation during verification")], None
        if before == now:
            break
    return [CheckResult(label, False, what) for what in wrong], None


def _identity(path: Path) -> tuple[int, int] | None:
    """Return a folder's device and inode, to detect replacement; None if missing."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        return -1, error.errno or 0
    return found.st_dev, found.st_ino


def _best(folder: RunFolder, good: list[str], newest: Checkpoint | None, in_use: bool) -> CheckResult:
    try:
        name = folder.best_name()
    except RunError as error:
        return CheckResult("best", False, error.what)
    if name is None:
        return CheckResult("best", True, "not set yet")
    whole = name in good
    if not whole and in_use:  # it may have been saved after the list was read
        with contextlib.suppress(RunError):
            folder.checkpoint(name)[0].verify()
            whole = True
    if not whole:
        there = any(name == other for other, _ in folder.list_checkpoints())
        return CheckResult("best", False, f"points to {name}, which is {'damaged' if there else 'missing'}")
    # A running process may be between a save and the update of ``best``; a killed one is repaired on resume.
    if newest is not None and name != "averaged" and not in_use:
        counted = read_state(newest)["counters"].get("best_step")
        if counted is not None and name != f"step-{counted}" and f"step-{counted}" in good:
            return CheckResult("best", False, f"points to {name}, but step-{counted} was the best")
    return CheckResult("best", True, f"points to {name}")


def _logs(folder: RunFolder, newest: Checkpoint | None) -> Iterator[CheckResult]:
    known = read_state(newest)["metrics_size"] if newest is not None else None
    for path, size in ((folder.metrics_path, known), (folder.timings_path, None)):
        try:
            log = logs.read_log(path, size)
        except FileNotFoundError:
            yield CheckResult(path.name, not size, "is missing" if size else "nothing was logged yet")
            continue
        except ValueError as error:
            yield CheckResult(path.name, False, str(error))
            continue
        if log.n_damaged:
            lines = logs.line_ranges(log.damaged, log.n_damaged)
            yield CheckResult(path.name, False, f"{lines} damaged")
        elif size is not None and log.size < size:
            yield CheckResult(path.name, False, f"is {size - log.size:,} bytes shorter than recorded")
        else:
            torn = f", {log.n_truncated:,} of them truncated"
            end = torn if size is None else "; the truncated last line is removed when the run resumes"
            yield CheckResult(path.name, True, f"{log.n_lines:,} lines{end if log.n_truncated else ''}")


def _status(folder: RunFolder, in_use: bool) -> CheckResult:
    path = folder.path / logs.STATUS_NAME
    status, steps = read_status(folder.path), folder.steps()
    if status is None:
        there = os.path.lexists(path)
        text = "cannot be read" if there else "is missing" if steps else "none"
        return CheckResult(path.name, not (there or steps), text)
    if status.step > max(steps, default=0) and not in_use:
        return CheckResult(path.name, False, f"reports step {status.step:,}, which has no checkpoint")
    return CheckResult(path.name, True, f"{status.state} at step {status.step:,}")


def _copies(folder: RunFolder, newest: Checkpoint | None) -> Iterator[CheckResult]:
    """Yield whether the copies at the root equal the files of the newest checkpoint."""
    if newest is None:
        return
    yield _config(folder, newest)
    for name in sorted(name for name in newest.manifest.files if name in TEXT_FILES or name.startswith("tokenizer")):
        try:
            most = max(MAX_BYTES, newest.entry(name).size)
            copy = hashlib.sha256(read_regular_file(folder.path / name, most)).hexdigest()
            same = copy == newest.entry(name).sha256
            yield CheckResult(name, same, f"{'same as' if same else 'differs from that'} in {newest.name}")
        except (OSError, ValueError) as error:
            yield CheckResult(name, False, _unreadable(error))


def _config(folder: RunFolder, newest: Checkpoint) -> CheckResult:
    try:
        raw = read_regular_file(folder.path / "config.yaml", MAX_CONFIG_BYTES)
        if raw == newest.read("config.yaml"):
            return CheckResult("config.yaml", True, f"as in {newest.name}")
        config = validate(type(read_run_config(newest)), parse_yaml(raw.decode(), "config.yaml"))
    except (OSError, ValueError) as error:
        return CheckResult("config.yaml", False, _unreadable(error))
    except UsageError as error:
        return CheckResult("config.yaml", False, error.what)
    changed = differences(read_run_config(newest), config)
    if changed or dump_yaml(config).encode() != raw:
        why = "; ".join(changed) or "edited by hand"
        return CheckResult("config.yaml", False, f"differs from the one in {newest.name}: {why}")
    return CheckResult("config.yaml", True, f"same as in {newest.name}, except for limits")


def _confidence(folder: RunFolder) -> Iterator[CheckResult]:
    """Yield whether the confidence of a translator can be read, if it has learned any."""
    from attnkit.tasks.translation.loading import CONFIDENCE_NAME, read_confidence

    if os.path.lexists(folder.path / CONFIDENCE_NAME):
        try:
            read_confidence(folder.path, "")
            yield CheckResult(CONFIDENCE_NAME, True, "whole")
        except RunError as error:
            yield CheckResult(CONFIDENCE_NAME, False, error.what)


def _data(folder: RunFolder) -> CheckResult:
    path = folder.data_path
    if not os.path.lexists(path):
        return CheckResult("data", True, "missing; it will be rebuilt from the text when needed")
    try:
        index = read_index(path)
    except RunError as error:
        return CheckResult("data", False, error.what)
    wrong = list(find_mismatches(path, index["contents"]))
    return CheckResult("data", not wrong, "; ".join(wrong) or f"{len(index['contents'])} files of encoded text")


def _unreadable(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return f"cannot be read: {getattr(error, 'strerror', None) or error}"
