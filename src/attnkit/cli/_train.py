"""What commands that train share: resolve the configuration, train, show progress and the outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnkit.cli import console
from attnkit.config import flatten
from attnkit.errors import StoppedError, UsageError

if TYPE_CHECKING:
    from attnkit.engine.events import TrainingFinished
    from attnkit.engine.resolve import ResolvedConfig
    from attnkit.engine.task import RunEstimate

SHARED_KEYS = {name: f"limits.{name}" for name in ("max_steps", "max_epochs", "max_minutes")}
SHARED_KEYS |= {name: name for name in ("seed", "device", "precision", "threads", "tensorboard")}
"""Parameter of several commands -> the configuration key that it sets."""


@dataclass(frozen=True)
class RunOptions:
    """The options of every command that trains which are not configuration keys."""

    output: Path
    config: Path | None
    preset: str
    sets: Sequence[str] | None
    init_from: Path | None
    overwrite: bool
    dry_run: bool
    json: bool


def configuration_keys(parameters: Mapping[str, Any], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return configuration keys with the values of a command's parameters; ``keys`` names those of its own."""
    return {key: parameters[name] for name, key in {**keys, **SHARED_KEYS}.items()}


def run_training(flags: Mapping[str, Any], options: RunOptions) -> None:
    """Train what flags, ``--set``, a file and a preset say, or show what that would be."""
    from attnkit.checkpoints.lock import check_not_in_use
    from attnkit.engine.resolve import inherited, preset_of, resolve

    output, init_from = options.output, options.init_from
    if not options.dry_run and os.environ.get("RANK", "0") == "0":  # the others would find the first one's lock
        check_not_in_use(output)
    resolved = resolve(
        flags,
        sets=options.sets or [],
        file=options.config,
        preset_name=options.preset,
        earlier=None if options.overwrite else preset_of(output),
        fixed=inherited(init_from, None if options.overwrite else output) if init_from is not None else None,
    )
    if resolved.config.checkpoints.average == 1:
        raise UsageError(
            "an average needs two checkpoints or more",
            where=f"checkpoints.average ({resolved.origin('checkpoints.average')})",
            help="0 makes none",
        )
    if options.dry_run:
        show_plan(resolved, options)
        return
    from attnkit.checkpoints.torchrun import fail_fast_on_repeat

    fail_fast_on_repeat(output)  # before torch is loaded
    from attnkit.engine.registry import task_spec
    from attnkit.engine.trainer import TrainRequest, train
    from attnkit.runtime.signals import StopRequests, launched_rank

    rank = launched_rank()  # of several processes the first alone prints
    with StopRequests() as stop, console.quiet(bool(rank)), console.StatusLine() as line:
        events = train(TrainRequest(resolved.config, output, options.overwrite, init_from, stop, line.update))
        use = task_spec(resolved.config.task, resolved.config.model_kind).command
        try:
            try:
                follow(events, line, stop.defer, lambda done: show_outcome(done, output, use, options.json))
            except (KeyboardInterrupt, SystemExit) as asked:
                events.throw(asked)  # the interrupt came while an event was shown, not while training
        except StoppedError as stopped:
            if rank is None:
                raise
            console.info(stopped.what)  # ending with 0: another code makes torchrun kill and restart its processes


def show_outcome(done: TrainingFinished, output: Path, use: str, json: bool) -> None:
    """Print the outcome; ``use`` is the command that takes such a run."""
    from attnkit.plotting.progress_text import scores

    if json:
        console.result(dumps(asdict(done)))
    elif done.already:
        console.result(f"{output} is finished: {done.step:,} steps. Raise a limit to continue, or add --overwrite.")
    else:
        said = f"done: {done.step:,} steps ({done.reason}); best: {done.best}"
        console.result(f"{said}\n{scores(done.metrics)}\ntry: {console.command(use, output)}")


def show_plan(resolved: ResolvedConfig, options: RunOptions) -> None:
    """Print the resolved configuration with the origin of each value, and an estimate of the run.

    Refuses what the run would refuse before it starts.
    """
    from attnkit.checkpoints.run_folder import RunFolder
    from attnkit.engine.registry import TASKS
    from attnkit.engine.task import task_of

    config: Any = resolved.config
    folder = RunFolder(options.output)
    if TASKS[config.task].presets:
        from attnkit.engine.pretrained_embeddings import open_embeddings
        from attnkit.engine.vocabularies import check_init_conflicts

        check_init_conflicts(config, options.init_from)
        if options.overwrite or not folder.steps():  # a resumed run has them in its weights
            open_embeddings(config)
    files = getattr(config.data, "valid_files", None) or ()
    if not options.overwrite and folder.data_path.exists() and not all(Path(name).exists() for name in files):
        # Validation files that are gone lie encoded in RUN/data, and a resumed run does not need them.
        config = config.model_copy(update={"data": config.data.model_copy(update={"valid_files": None})})
    estimate = task_of(resolved.config).dry_run(config, options.init_from)
    values = flatten(resolved.config.model_dump(mode="json"))
    if options.json:
        values = {key: {"value": value, "origin": resolved.origin(key)} for key, value in values.items()}
        plan = None if estimate is None else asdict(estimate)
        shown = {"preset": getattr(resolved.config, "preset", None), "configuration": values, "plan": plan}
        console.result(dumps(shown, indent=1))
        return
    rows = [(key, "null" if v is None else str(v), resolved.origin(key)) for key, v in values.items()]
    console.result(f"{console.table(rows)}\n\n{estimate_text(estimate)}")


def estimate_text(estimate: RunEstimate | None) -> str:
    """Return the estimate of a run in lines of at most 80 columns."""
    from attnkit.plotting.progress_text import count, duration, size

    if estimate is None:
        return "no estimate: the input can be read only once, and is left for the run"
    disk = "" if estimate.disk is None else f" and {size(estimate.disk)} of disk"
    lines = [
        f"{estimate.n_examples:,} {estimate.unit}, about {count(estimate.tokens_per_epoch)} tokens"
        f" and {estimate.steps_per_epoch:,} steps per epoch",
        f"{count(estimate.n_parameters)} parameters, about {size(estimate.memory)} of memory{disk}",
        f"{estimate.device}, {estimate.precision}",
    ]
    if estimate.seconds is not None:
        lines.append(f"about {duration(estimate.seconds)} of training, give or take a factor of three")
    return "\n".join([*lines, *([estimate.note] if estimate.note else [])])


def follow(
    events: Iterator[Any], line: console.StatusLine, begin: Callable[[], None], handle: Callable[[Any], None]
) -> None:
    """Show the events that are progress and pass the others, the outcomes, to ``handle``.

    ``begin`` is called when training starts. The status line is cleared before ``handle`` is called.
    """
    from attnkit.data.prepared_dir import DataCheckEvent, StatusEvent, WarningEvent
    from attnkit.engine.events import TrainingProgress, TrainingStarted, ValidationFinished
    from attnkit.plotting import progress_text as views
    from attnkit.training.records import StepRecord

    clock = views.Clock()
    for event in events:
        if isinstance(event, StatusEvent):
            line.say(event.text)
        elif isinstance(event, WarningEvent):
            line.say(f"warning: {event.text}")
        elif isinstance(event, DataCheckEvent):
            for text in views.data_check_lines(event.report):
                line.say(text)
        elif isinstance(event, TrainingStarted):
            begin()
            where = f"{event.device}, {event.precision}"
            line.say("\n".join(views.start_lines(event.step, event.n_parameters, event.counts, where, event.unit)))
        elif isinstance(event, ValidationFinished):
            scored = event.record
            found = views.evaluation_line(scored.step, scored.metrics, scored.improved)
            line.say("\n".join([found, *views.samples(event.samples)]))
            clock.skip()
        elif isinstance(event, TrainingProgress):
            speed = event.speed, event.seconds_left
            line.update(views.progress_line(event.done, event.loss, event.learning_rate, speed, event.unit))
        elif isinstance(event, StepRecord):
            if event.skipped:
                line.say(f"warning: step {event.step:,} is skipped: its loss or its gradient is not finite")
            speed = clock.tick(event.n_tokens, event.progress)
            loss = None if event.skipped else event.loss
            line.update(views.step_line(event.step, loss, event.learning_rate, event.progress, speed))
        else:
            line.clear()
            handle(event)
