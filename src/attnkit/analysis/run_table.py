"""Runs below a folder, and the settings in which they differ. Torch-free."""

from __future__ import annotations

import json
import math
import os
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from attnkit.checkpoints.logs import STATUS_NAME, Status, read_origins, read_records, read_status
from attnkit.checkpoints.run_folder import RunFolder, is_run
from attnkit.engine.checkpoint_metadata import checkpoint_scores, read_run_config, read_tree
from attnkit.engine.registry import TASKS
from attnkit.errors import AttnkitError, RunError, UsageError
from attnkit.io.lock import is_locked
from attnkit.io.plain_data import PlainResult
from attnkit.training.config import LOWER_IS_BETTER

RunState = Literal["running", "finished", "stopped", "failed", "interrupted", "imported", "damaged"]
SortKey = Literal["path", "best", "minutes", "step"]
SEED = "seed"
APART = "data."
"""Start of the keys that name files; they differ between any two corpora, and are shown last."""


@dataclass(frozen=True)
class RunRow(PlainResult):
    """A run in the table of its folder."""

    path: Path
    task: str | None = None  #: None if the configuration cannot be read
    model: str | None = None  #: kind of model
    state: RunState = "damaged"
    step: int = 0
    minutes: float | None = None  #: of training; None if none were recorded
    metric: str | None = None  #: metric that selects the best checkpoint
    best: float | None = None  #: development score of the best checkpoint
    checkpoint: str | None = None  #: name of the best checkpoint
    differs: Mapping[str, Any] = field(default_factory=dict)
    """Settings that are not the same in all runs of the task: key -> value."""
    origins: Mapping[str, str] | None = None
    """Their origins, e.g. ``flag`` or ``preset small``: key -> origin; None if the run has recorded none."""
    problem: str = ""  #: why the run failed or cannot be read


@dataclass(frozen=True)
class RunGroup(PlainResult):
    """Runs that differ in nothing but the seed."""

    paths: list[Path]
    task: str | None
    metric: str | None
    mean: float | None  #: of the best scores; None if none has a score
    deviation: float | None  #: standard deviation of a single run (n - 1); None for fewer than two scores
    scores: list[float]  #: of the runs that have one, in the order of their seeds
    differs: Mapping[str, Any]  #: settings that are not the same in all groups of the task: key -> value


def list_runs(folders: Sequence[Path], sort: SortKey = "path") -> list[RunRow]:
    """Return the runs that are, or lie below, the folders.

    Runs inside of run folders are left out, as are folders with a dot in front and symbolic links. A damaged run has a
    row as well. ``best`` sorts by task, then by metric, the best run first.

    Raises:
        RunError: a folder is missing, or no folder has a run.
    """
    paths: dict[Path, Path] = {}  # resolved -> as given
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"no such folder: {folder}", help="give a run folder, or a folder of run folders")
        paths = {path.resolve(): path for path in _find(folder)} | paths
    if not paths:
        named = ", ".join(map(str, folders))
        raise RunError(f"no run folder in {named}", help="give the folder in which attnkit train wrote runs")
    found = [_read(path) for path in paths.values()]
    rows = _with_differences([row for row, _ in found], [settings for _, settings in found])
    return sorted(rows, key=lambda row: _order(row, sort))


def _find(folder: Path) -> Iterator[Path]:
    try:
        if is_run(folder):
            yield folder
            return
        below = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:  # not readable, e.g. of another user
        return
    for name in below:
        if not name.startswith("."):
            yield from _find(folder / name)


def _read(path: Path) -> tuple[RunRow, dict[str, Any]]:
    """Return a run's row, without differences, and its settings as key -> value."""
    row = RunRow(path)
    try:
        status = read_status(path)
        row = replace(row, state=_state(path, status), step=status.step if status else 0, minutes=_minutes(path))
        if status and row.state == "failed":
            row = replace(row, problem=status.reason)
        return _with_checkpoint(row)
    except (AttnkitError, OSError, ValueError) as error:
        problem = error.what if isinstance(error, AttnkitError) else str(error)
        # A running run may rotate a checkpoint away while it is read.
        return replace(row, state=row.state if row.state == "running" else "damaged", problem=problem), {}


def _state(path: Path, status: Status | None) -> RunState:
    if is_locked(path):
        return "running"
    if status is None:
        return "damaged" if (path / STATUS_NAME).exists() else "interrupted"
    if status.state == "running":
        return "interrupted"
    return "imported" if status.step == 0 and re.match("imported from|merged from", status.reason) else status.state


def _minutes(path: Path) -> float | None:
    """Return the minutes of training; None if none were recorded."""
    timings, minutes = RunFolder(path).timings_path, None
    if timings.exists():
        for record in read_records(timings):
            minutes = float(record["minutes"]) if "minutes" in record else float(record.get("seconds", 0.0)) / 60
    return minutes


def _with_checkpoint(row: RunRow) -> tuple[RunRow, dict[str, Any]]:
    """Return the row with what the best checkpoint says, and the settings."""
    folder = RunFolder(row.path)
    if not folder.list_checkpoints() and not row.step:  # nothing was saved yet
        return row, {}
    checkpoint = folder.checkpoint()[0]
    task = read_tree(checkpoint).get("task")
    row = replace(row, task=task if isinstance(task, str) and task in TASKS else None, checkpoint=checkpoint.name)
    try:
        config = read_run_config(checkpoint)
    except AttnkitError as error:  # of another version: not damage
        return replace(row, problem=error.what), {}
    row = replace(row, model=config.model_kind)
    wanted = config.limits.metric if hasattr(config, "limits") else None
    metric = wanted if wanted in config.metrics else None
    score = checkpoint_scores(checkpoint, [metric]).get(metric) if metric is not None else None
    row = replace(row, metric=metric, best=score, origins=read_origins(row.path))
    return row, dict(flatten(config.model_dump(mode="json")))


def group_by_seed(rows: Sequence[RunRow]) -> list[RunGroup]:
    """Return the finished runs by configuration, one run for each seed: the first.

    They are in the order of the rows; ``sort_groups`` orders them by their means.
    """
    groups: dict[str, list[RunRow]] = {}
    for row in rows:
        if row.task is not None and row.state == "finished":
            settings = {name: value for name, value in row.differs.items() if name != SEED}
            members = groups.setdefault(f"{row.task} {row.metric} {json.dumps(settings, sort_keys=True)}", [])
            if row.differs.get(SEED) not in [other.differs.get(SEED) for other in members]:
                members.append(row)
    found = []
    for members in groups.values():
        members.sort(key=lambda row: row.differs.get(SEED, 0))
        scores = [row.best for row in members if row.best is not None and math.isfinite(row.best)]
        found.append(
            RunGroup(
                [row.path for row in members],
                members[0].task,
                members[0].metric,
                statistics.mean(scores) if scores else None,
                statistics.stdev(scores) if len(scores) > 1 else None,
                scores,
                {name: value for name, value in members[0].differs.items() if name != SEED},
            )
        )
    return found


def sort_groups(groups: Sequence[RunGroup]) -> list[RunGroup]:
    """Return the groups of each task by their means, the best first."""
    return sorted(groups, key=lambda group: _rank(group.task, group.metric, group.mean))


def _rank(task: str | None, metric: str | None, score: float | None) -> tuple[str, str, float]:
    """Return what sorts scores: by task, by metric, the best first."""
    sign = 1 if metric in LOWER_IS_BETTER else -1
    value = math.inf if score is None or math.isnan(score) else sign * score
    return task or "~", metric or "~", value


def unusual(rows: Sequence[RunRow | RunGroup]) -> list[dict[str, Any]]:
    """Return each row's settings that at most half of its task's rows have."""
    found = []
    for row in rows:
        peers = [other.differs for other in rows if other.task == row.task]
        shares = {name: sum(other.get(name) == value for other in peers) for name, value in row.differs.items()}
        found.append({name: row.differs[name] for name, n in shares.items() if 2 * n <= len(peers)})
    return found


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of nested settings.

    >>> dict(flatten({"model": {"kind": "rnn"}, "seed": 1}))
    {'model.kind': 'rnn', 'seed': 1}
    """
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _with_differences(rows: Sequence[RunRow], settings: Sequence[Mapping[str, Any]]) -> list[RunRow]:
    """Return the rows with the settings that differ between runs of their task."""
    keys: dict[str | None, list[str]] = {}
    for task in dict.fromkeys(row.task for row in rows):
        own = [tree for row, tree in zip(rows, settings, strict=True) if row.task == task and tree]
        names = dict.fromkeys(name for tree in own for name in tree)
        different = [name for name in names if any(tree.get(name) != own[0].get(name) for tree in own)]
        keys[task] = sorted(different, key=lambda name: name.startswith(APART))
    found = []
    for row, tree in zip(rows, settings, strict=True):
        differs = {name: tree[name] for name in keys[row.task] if name in tree}
        origins = None if row.origins is None else {name: row.origins.get(name, "default") for name in differs}
        found.append(replace(row, differs=differs, origins=origins))
    return found


def _order(row: RunRow, sort: SortKey) -> tuple[Any, ...]:
    path = str(row.path)
    if sort == "best":
        return *_rank(row.task, row.metric, row.best), path
    if sort == "minutes":
        return -(row.minutes or 0.0), path
    if sort == "step":
        return -row.step, path
    if sort == "path":
        return (path,)
    raise UsageError(f"unknown order '{sort}'", where="--sort", help="path, best, minutes or step")
