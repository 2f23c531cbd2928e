"""Reading and validation of a checkpoint's text files. Torch-free.

The manifest proves that a file is unchanged, not that its content is valid; a run folder may be from an unknown source.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from attnkit.checkpoints.checkpoint import Checkpoint
from attnkit.config import dump_yaml, parse_yaml, validate
from attnkit.engine.registry import TASKS, load_symbol, task_spec
from attnkit.errors import RunError, UsageError
from attnkit.text.vocabulary_schema import MAX_BYTES

if TYPE_CHECKING:
    from attnkit.data.labels import Labels

MAX_CONFIG_BYTES = 1 << 20
MAX_STATE_BYTES = 1 << 24  #: enough for about 100,000 evaluations
TEXT_FILES: Mapping[str, int] = {
    "tokenizer.json": MAX_BYTES,
    "tokenizer.target.json": MAX_BYTES,
    "sentences.json": 1 << 20,
    "profile.json": 1 << 20,
    "labels.json": 1 << 23,
    "vectors.json": MAX_BYTES,
    "words.tsv": 1 << 34,
}
"""Text files of a checkpoint besides configuration and state, and the maximum number of bytes of each."""

# Exact as a float64, so that JSON readers of other languages preserve them.
Count = Annotated[int, Field(ge=0, le=2**53)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Digits = Annotated[str, Field(pattern="^(0|[1-9][0-9]{0,15})$")]
Scores = dict[Annotated[str, Field(max_length=40)], float]


class _Position(BaseModel, extra="forbid", strict=True):
    epoch: Count
    index: Count


# A schema rather than a dataclass, so that files of any origin are validated in strict mode.
class Counters(BaseModel, extra="forbid", strict=True):
    """Schema of the counters of ``TrainState``."""

    step: Count
    epoch: Finite = Field(ge=0)
    tokens: Count
    minutes: Finite = Field(ge=0)
    skipped: Count
    skipped_in_row: Count
    best: Finite | None
    best_step: Count | None
    best_loss: float | None
    evals_without_improvement: Count
    plateau_wait: Count
    lr_scale: Finite = Field(ge=0, le=1)
    eval_pending: bool
    finished: Literal["steps", "epochs", "tokens", "minutes", "patience", "stopped"] | None
    updates: Count
    position: _Position


class _State(BaseModel, extra="forbid", strict=True):
    counters: dict[str, Any]
    fingerprint: str
    init_from: str | None = None
    metrics_size: Count
    scores: dict[Digits, Scores]


class _Averaged(BaseModel, extra="forbid", strict=True):
    averaged: list[Count]
    metrics: Scores
    """Empty if the average was not evaluated."""


def check_serializable(config: BaseModel) -> None:
    """Raise ``UsageError`` if a configuration is too large to be read back."""
    # Checked before training: a run that could not be resumed must not start.
    text, help = dump_yaml(config), "use fewer or shorter paths, e.g. concatenate the text files"
    size = len(text.encode())
    if size > MAX_CONFIG_BYTES:
        raise UsageError(f"the configuration takes {size:,} bytes, more than {MAX_CONFIG_BYTES:,}", help=help)
    try:
        # The reader's limits on size and nodes must hold for the written file, too.
        parse_yaml(text, "config.yaml")
    except UsageError as error:
        raise UsageError(f"the configuration could not be read back: {error.what}", help=help) from error


def read_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint's ``state.json``. Raises ``RunError`` if it is invalid."""
    # The schema of the counters depends on the task, so it is checked second.
    state = _read_json(checkpoint, _State)
    config = read_run_config(checkpoint)
    _validated(checkpoint, load_symbol(TASKS[config.task].counters_path), json.dumps(state["counters"]), "counters.")
    # Every evaluation of a run reports the same metrics.
    names = set(config.metrics)
    for step, scores in state["scores"].items():
        if scores.keys() != names:
            raise _invalid(checkpoint, "state.json", f"scores.{step} must be {', '.join(sorted(names))}")
    # In a crafted run, the folder's name and its contents could disagree.
    if state["counters"]["step"] != checkpoint.step:
        raise _invalid(checkpoint, "state.json", f"counters.step is not {checkpoint.step}")
    return state


def read_averaged(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return an average's ``state.json``. Raises ``RunError`` if it is invalid."""
    state = _read_json(checkpoint, _Averaged)
    # An average that was made by hand was never evaluated and has no metrics.
    if state["metrics"] and state["metrics"].keys() != (names := {*read_run_config(checkpoint).metrics}):
        raise _invalid(checkpoint, "state.json", f"metrics must be {', '.join(sorted(names))}")
    return state


def checkpoint_scores(checkpoint: Checkpoint, names: Sequence[str]) -> Mapping[str, float]:
    """Return the development scores of a checkpoint; empty if it was not evaluated.

    ``names`` gives their order, the configuration's ``metrics``.

    Raises:
        RunError: the state of the checkpoint is invalid.
    """
    if "state.json" not in checkpoint.manifest.files:
        return {}
    if checkpoint.name == "averaged":
        found: Mapping[str, float] = read_averaged(checkpoint)["metrics"]
    else:
        found = read_state(checkpoint)["scores"].get(str(checkpoint.step), {})
    return {name: found[name] for name in names if name in found}


def read_run_config(checkpoint: Checkpoint, *tasks: str) -> Any:
    """Return a checkpoint's configuration as an instance of its task's class.

    Raises ``RunError`` if it is invalid or its task is not among ``tasks``; without ``tasks``, any task is accepted.
    """
    tree = read_tree(checkpoint)
    # Truncated, as the file may be untrusted and this goes into a message.
    stored = str(tree.get("task"))[:40]
    if stored not in TASKS or (tasks and stored not in tasks):
        expected = " or ".join(TASKS[task].description for task in tasks) or f"one of {', '.join(TASKS)}"
        help = f"use attnkit {TASKS[stored].command}" if stored in TASKS else None
        raise RunError(f"this is a run of task '{stored}', not {expected}", where=str(checkpoint.path), help=help)
    model = tree.get("model")
    kind = str(model.get("kind")) if isinstance(model, dict) else None
    try:
        return validate(task_spec(stored, kind).config, tree)
    except UsageError as error:
        what = f"this run was written by another attnkit version: {error.what}"
        raise RunError(what, where=str(checkpoint.path)) from error


def read_tree(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint's configuration tree. Raises ``RunError`` if invalid."""
    try:
        tree = parse_yaml(read_bounded(checkpoint, "config.yaml", MAX_CONFIG_BYTES).decode("utf-8"), "config.yaml")
    except UnicodeDecodeError as error:
        raise _invalid(checkpoint, "config.yaml", "not UTF-8") from error
    except UsageError as error:
        raise _invalid(checkpoint, "config.yaml", error.what) from error
    if not isinstance(tree, dict):
        raise _invalid(checkpoint, "config.yaml", "not a mapping of keys to values")
    return tree


def read_bounded(checkpoint: Checkpoint, file: str, most: int) -> bytes:
    """Return a file's content; raise ``RunError`` if it exceeds ``most`` bytes."""
    # The size is taken from the manifest, so an oversized file is rejected unread.
    size = checkpoint.entry(file).size
    if size > most:
        raise _invalid(checkpoint, file, f"{size:,} bytes, more than the {most:,} allowed")
    return checkpoint.read(file)


def _read_json(checkpoint: Checkpoint, model: type[BaseModel]) -> dict[str, Any]:
    raw = read_bounded(checkpoint, "state.json", MAX_STATE_BYTES)
    _validated(checkpoint, model, raw)
    try:
        state: dict[str, Any] = json.loads(raw)
    # json raises RecursionError for thousands of nested brackets.
    except (ValueError, RecursionError) as error:
        raise _invalid(checkpoint, "state.json", str(error)) from error
    return state


def _validated(checkpoint: Checkpoint, model: type[BaseModel], raw: str | bytes, prefix: str = "") -> None:
    """Validate JSON in strict mode; raise ``RunError`` if it is invalid."""
    try:
        model.model_validate_json(raw)
    except ValidationError as error:
        # One error is enough, as a hostile file may have a million.
        first = error.errors(include_url=False)[0]
        # Dotted path, truncated because keys of a hostile file may have any length.
        place = f"{prefix}{'.'.join(map(str, first['loc']))}"[:80].removesuffix(".")
        raise _invalid(checkpoint, "state.json", f"{place}: {first['msg']}" if place else first["msg"]) from error
    except (ValueError, RecursionError) as error:
        raise _invalid(checkpoint, "state.json", str(error)) from error


def _invalid(checkpoint: Checkpoint, file: str, why: str) -> RunError:
    return RunError(f"invalid {file} in checkpoint {checkpoint.name}: {why}", where=str(checkpoint.path / file))


def read_labels(checkpoint: Checkpoint) -> Labels:
    """Return the labels of a checkpoint."""
    from attnkit.data.labels import Labels

    return Labels.parse(read_bounded(checkpoint, "labels.json", TEXT_FILES["labels.json"]), str(checkpoint.path))
