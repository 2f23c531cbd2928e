"""Writing of a run that was not trained here: one checkpoint of step 0."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from attnkit.checkpoints.checkpoint import Content
from attnkit.checkpoints.logs import Status
from attnkit.checkpoints.run_folder import RunFolder, check_target_dir, is_run
from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.training.state import TrainState

# Without the optimizer's state, which it does not have yet.
_COUNTERS: dict[str, Any] = {field.name: field.default for field in fields(TrainState)[2:]}
_COUNTERS |= {"finished": "stopped", "updates": 0, "position": {"epoch": 0, "index": 0}}


def check_is_new(run: Path) -> None:
    """Raise ``UsageError`` if a folder contains a run, ``RunError`` if other files."""
    check_target_dir(run)
    if is_run(run):
        raise UsageError("the output folder already contains a run", where=str(run), help="choose a new folder")


def write_new_run(
    run: Path,
    texts: Mapping[str, bytes],
    weights: Mapping[str, Content],
    card: str,
    reason: str,
    base: Mapping[str, Content] | None = None,
) -> None:
    """Write a run of one checkpoint, of step 0.

    ``texts`` are its configuration, vocabulary and labels, of which copies lie at the root; ``base`` are the weights
    that an adapter adapts. ``card`` is README.md, ``reason`` says where the run is from.
    """
    state = {"counters": _COUNTERS, "fingerprint": "", "init_from": None, "metrics_size": 0, "scores": {}}
    with ExitStack() as stack:
        place = run
        if not run.exists():  # create a new folder atomically
            atomic.make_dirs(run.absolute().parent)
            place = stack.enter_context(atomic.atomic_dir(run.absolute()))
        target = RunFolder(place)
        with target.lock():
            if base is not None:
                target.save_base(base)
            target.save(0, {**texts, "state.json": json.dumps(state, sort_keys=True).encode(), **weights})
            for name, content in {**texts, "README.md": card.encode()}.items():
                target.write_copy(name, content)
            target.write_status(Status(state="stopped", step=0, reason=reason, exit_code=0))
