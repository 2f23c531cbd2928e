"""What commands that train have in common: they complete what they were given, train, and show how it ended.

Holds no command of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.cli import console
from attnkit.cli._progress import follow
from attnkit.config import flatten
from attnkit.errors import StoppedError, UsageError

if TYPE_CHECKING:
    from attnkit.engine.events import TrainingFinished
    from attnkit.engine.resolve import Resolved
    from attnkit.engine.task import RunEstimate


@dataclass(frozen=True)
class Given:
    """What every command that trains is given besides the keys that its own flags set."""

    output: Path
    config: Path | None
    preset: str
    sets: Sequence[str] | None
    init_from: Path | None
    overwrite: bool
    dry_run: bool
    json: bool


def begin(flags: Mapping[str, Any], given: Given) -> None:
    """Train what flags, ``--set``, a file and a preset say, or show what that would be."""
    from attnkit.checkpoints.lock import check_not_in_use
    from attnkit.engine.resolve import inherited, preset_of, resolve

    output, init_from = given.output, given.init_from
    if not given.dry_run and os.environ.get("RANK", "0") == "0":  # the others would find the first one's lock
        check_not_in_use(output)
    resolved = resolve(
        flags,
        sets=given.sets or [],
        file=given.config,
        preset_name=given.preset,
        earlier=None if given.overwrite else preset_of(output),
        fixed=inherited(init_from, None if given.overwrite else output) if init_from is not None else None,
    )
    if resolved.config.checkpoints.average == 1:
        raise UsageError(
            "an average needs two checkpoints or more",
            where=f"checkpoints.average ({resolved.origin('checkpoints.average')})",
            help="0 makes none",
        )
    if given.dry_run:
        show_plan(resolved, given)
        return
    from attnkit.checkpoints.torchrun import fail_fast_on_repeat

    fail_fast_on_repeat(output)  # before torch is loaded
    from attnkit.engine.registry import task_spec
    from attnkit.engine.trainer import TrainRequest, train
    from attnkit.runtime.signals import StopRequests, launched_rank

    rank = launched_rank()  # of several processes the first alone prints
    with StopRequests() as stop, console.quiet(bool(rank)), console.StatusLine() as line:
        events = train(TrainRequest(resolved.config, output, given.overwrite, init_from, stop, line.update))
        use = task_spec(resolved.config.task, resolved.config.model_kind).command
        try:
            try:
                follow(events, line, stop.defer, lambda done: show(done, output, use, given.json))
            except (KeyboardInterrupt, SystemExit) as asked:
                events.throw(asked)  # the interrupt came while an event was shown, not while training
        except StoppedError as stopped:
            if rank is None:
                raise
            console.info(stopped.what)  # ending with 0: another code makes torchrun kill and restart its processes


def show(done: TrainingFinished, output: Path, use: str, json: bool) -> None:
    """Print the outcome; ``use`` is the command that takes such a run."""
    from attnkit.plotting.progress_text import scores

    if json:
        console.result(dumps(asdict(done)))
    elif done.already:
        console.result(f"{output} is finished: {done.step:,} steps. Raise a limit to continue, or add --overwrite.")
    else:
        said = f"done: {done.step:,} steps ({done.reason}); best: {done.best}"
        console.result(f"{said}\n{scores(done.metrics)}\ntry: {console.command(use, output)}")


def show_plan(resolved: Resolved, given: Given) -> None:
    """Print the resolved configuration with the origin of each value, and an estimate of the run.

    Refuses what the run would refuse before it starts.
    """
    from attnkit.checkpoints.run_folder import RunFolder
    from attnkit.engine.registry import TASKS
    from attnkit.engine.task import task_of

    if TASKS[resolved.config.task].presets:
        from attnkit.engine.pretrained_embeddings import open_embeddings
        from attnkit.engine.vocabularies import check_init_conflicts

        check_init_conflicts(resolved.config, given.init_from)
        if given.overwrite or not RunFolder(given.output).steps():  # a resumed run has them in its weights
            open_embeddings(resolved.config)
    config = resolved.config
    if not given.overwrite:
        config = without_missing_validation(config, RunFolder(given.output).data_path)
    found = task_of(resolved.config).dry_run(config, given.init_from)
    values = flatten(resolved.config.model_dump(mode="json"))
    if given.json:
        values = {key: {"value": value, "origin": resolved.origin(key)} for key, value in values.items()}
        plan = None if found is None else asdict(found)
        shown = {"preset": getattr(resolved.config, "preset", None), "configuration": values, "plan": plan}
        console.result(dumps(shown, indent=1))
        return
    rows = [(key, "null" if v is None else str(v), resolved.origin(key)) for key, v in values.items()]
    console.result(f"{console.table(rows)}\n\n{estimate_text(found)}")


def without_missing_validation(config: Any, data_path: Path) -> Any:
    """Drop missing validation files from a configuration if RUN/data has them encoded, as for resuming."""
    files = getattr(config.data, "valid_files", None) or ()
    if not data_path.exists() or all(Path(name).exists() for name in files):
        return config
    return config.model_copy(update={"data": config.data.model_copy(update={"valid_files": None})})


def estimate_text(found: RunEstimate | None) -> str:
    """Return the estimate of a run in lines of at most 80 columns."""
    from attnkit.plotting.progress_text import count, duration, size

    if found is None:
        return "no estimate: the input can be read only once, and is left for the run"
    disk = "" if found.disk is None else f" and {size(found.disk)} of disk"
    lines = [
        f"{found.n_examples:,} {found.unit}, about {count(found.tokens_per_epoch)} tokens"
        f" and {found.steps_per_epoch:,} steps per epoch",
        f"{count(found.n_parameters)} parameters, about {size(found.memory)} of memory{disk}",
        f"{found.device}, {found.precision}",
    ]
    if found.seconds is not None:
        lines.append(f"about {duration(found.seconds)} of training, give or take a factor of three")
    return "\n".join([*lines, *([found.note] if found.note else [])])
