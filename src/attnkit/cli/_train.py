"""Shared part of the training commands: options, configuration, progress, results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from attnkit.cli.options import DryRun, Json, Overwrite, Quiet, with_options
from attnkit.errors import StoppedError, UsageError
from attnkit.progress import console

if TYPE_CHECKING:
    from attnkit.engine.events import TrainingFinished
    from attnkit.engine.resolve import ResolvedConfig
    from attnkit.engine.task import RunEstimate

LEAST_BLEU = 1.0  #: a model below has learned frequent words at most
UNLEARNED = "little is learned: try more --max-epochs, or a lower optimization.learning_rate if the loss stays high"


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of all training commands; None: from the configuration file or preset."""

    config: Annotated[Path | None, Option(help="YAML configuration.")] = None
    sets: Annotated[
        list[str] | None,
        Option("--set", help="Configuration key, e.g. optimization.learning_rate=0.001.", metavar="KEY=VALUE"),
    ] = None
    max_steps: Annotated[int | None, Option(min=1, help="Maximum number of steps.")] = None
    max_epochs: Annotated[float | None, Option(help="Maximum number of epochs.")] = None
    max_minutes: Annotated[float | None, Option(help="Maximum wall time in minutes.")] = None
    seed: Annotated[int | None, Option(min=0, help="Seed of initialization, data order, masking and dropout.")] = None
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"] | None, Option(help="Device.")] = None
    precision: Annotated[Literal["auto", "float32", "bfloat16"] | None, Option(help="Floating-point precision.")] = None
    threads: Annotated[int | None, Option(min=1, help="CPU threads per operation.")] = None
    overwrite: Overwrite = False
    tensorboard: Annotated[bool | None, Option(help="Write TensorBoard event files.")] = None
    dry_run: DryRun = False
    quiet: Quiet = False
    json: Json = False


with_training_options = with_options("training", TrainingOptions)
"""Replace a command's parameter ``training`` by the options in TrainingOptions."""


def run_training(
    flags: Mapping[str, Any],
    training: TrainingOptions,
    output: Path,
    *,
    preset: str = "auto",
    init_from: Path | None = None,
) -> None:
    """Train with the given flags, options and preset, or show the plan of a dry run."""
    from attnkit.engine.resolve import TRAINING_KEYS, inherited, preset_of, resolve
    from attnkit.io.lock import check_not_in_use

    resolved = resolve(
        {key: getattr(training, name) for name, key in TRAINING_KEYS.items()} | dict(flags),
        sets=training.sets or [],
        file=training.config,
        preset_name=preset,
        earlier=None if training.overwrite else preset_of(output),
        fixed=None if init_from is None else inherited(init_from, None if training.overwrite else output),
    )
    if resolved.config.checkpoints.average == 1:
        what, help = "averaging needs at least two checkpoints", "set checkpoints.average=0 to disable averaging"
        raise UsageError(what, where=f"checkpoints.average ({resolved.origin('checkpoints.average')})", help=help)
    if getattr(resolved.config, "tensorboard", False):
        from attnkit.engine.tensorboard import check_tensorboard

        check_tensorboard()
    if training.dry_run:
        show_plan(resolved, training, output, init_from)
        return
    check_other_files(resolved.config, output, training.overwrite)
    if os.environ.get("RANK", "0") == "0":  # other ranks would find the lock of rank 0
        check_not_in_use(output)
    from attnkit.checkpoints.torchrun import fail_fast_on_repeat

    fail_fast_on_repeat(output)  # before torch is loaded
    from attnkit.engine.events import TrainRequest
    from attnkit.engine.registry import task_spec
    from attnkit.engine.trainer import train
    from attnkit.plotting.progress_text import scores
    from attnkit.runtime.signals import StopRequests, launched_rank

    use, *usage = getattr(resolved.config, "usage", ()) or [
        task_spec(resolved.config.task, resolved.config.model_kind).command
    ]
    options = [*getattr(resolved.config, "language_options", ())] or usage

    def show_outcome(done: TrainingFinished) -> None:
        if training.json:
            console.result(dumps(asdict(done)))
        elif done.already:
            console.result(f"{output} is finished: {done.step:,} steps. Raise a limit to continue, or add --overwrite.")
        else:
            limit = "early_stopping_patience" if done.reason == "patience" else f"max_{done.reason}"
            said = f"done: {done.step:,} steps ({limit} reached); best: {done.best}"
            advice = f"\n{UNLEARNED}" if done.metrics.get("bleu", 100.0) < LEAST_BLEU else ""
            next_step = console.command(*use.split(), output, *options)
            console.result(f"{said}\n{scores(done.metrics)}{advice}\ntry: {next_step}")

    rank = launched_rank()  # only rank 0 prints
    with StopRequests() as stop, console.quiet(bool(rank)), console.StatusLine() as line:
        events = train(
            TrainRequest(resolved.config, output, training.overwrite, init_from, resolved.origins, stop, line.update)
        )
        try:
            try:
                follow(events, line, stop.defer, show_outcome)
            except (KeyboardInterrupt, SystemExit) as asked:
                events.throw(asked)  # interrupted while an event was shown, not while training
        except StoppedError as stopped:
            if rank is None:
                raise
            console.alert(stopped.what)  # exit with 0: torchrun kills and restarts its processes after any other code


def check_other_files(config: Any, output: Path, overwrite: bool) -> None:
    """Raise the error of a missing validation or vocabulary file.

    The training files were counted before, and a run that has encoded its text needs none of these files again.
    """
    from attnkit.checkpoints.run_folder import RunFolder
    from attnkit.text.lines import open_binary
    from attnkit.text.sources import source_files
    from attnkit.text.tokenizer import load

    if not overwrite and RunFolder(output).data_path.exists():
        return
    for key in ("valid_src", "valid_tgt", "valid_files"):
        for path in map(Path, getattr(config.data, key, None) or ()):
            for file in source_files(path):
                if not file.exists():  # a pipe can be opened only once
                    open_binary(file).close()
    for path in map(Path, getattr(config, "vocabulary_files", None) or ()):
        if not path.exists():
            load(path)


def show_plan(resolved: ResolvedConfig, training: TrainingOptions, output: Path, init_from: Path | None) -> None:
    """Print the configuration with the origin of each value, and a run estimate.

    Raises the errors that the run would raise before training.
    """
    from attnkit.checkpoints.run_folder import RunFolder
    from attnkit.config import flatten
    from attnkit.engine.registry import TASKS
    from attnkit.engine.task import task_of
    from attnkit.text.sources import source_exists

    config: Any = resolved.config
    folder = RunFolder(output)
    if TASKS[config.task].presets:
        from attnkit.engine.pretrained_embeddings import open_embeddings
        from attnkit.engine.vocabularies import check_has_weights, check_init_conflicts

        check_init_conflicts(config, init_from)
        if training.overwrite or not folder.steps():  # a resumed run has its embeddings and its base
            check_has_weights(config, init_from)
            open_embeddings(config)
    files = getattr(config.data, "valid_files", None) or ()
    if not training.overwrite and folder.data_path.exists() and not all(source_exists(Path(name)) for name in files):
        # Deleted validation files are still in RUN/data, encoded; a resumed run does not need the originals.
        config = config.model_copy(update={"data": config.data.model_copy(update={"valid_files": None})})
    estimate = task_of(resolved.config).dry_run(config, init_from)
    values = flatten(resolved.config.model_dump(mode="json"))
    if training.json:
        values = {key: {"value": value, "origin": resolved.origin(key)} for key, value in values.items()}
        plan = None if estimate is None else asdict(estimate)
        preset = getattr(resolved.config, "preset", None)
        console.result(dumps({"preset": preset, "configuration": values, "plan": plan}, indent=1))
        return
    rows = [(key, "null" if v is None else str(v), resolved.origin(key)) for key, v in values.items()]
    # A terminal shows the end: the estimate, and before it what was chosen.
    lines = console.table(sorted(rows, key=lambda row: row[2] != "default")).splitlines()
    n_defaults = sum(origin == "default" for _, _, origin in rows)
    parts = ["defaults:", *lines[:n_defaults], "", "chosen:", *lines[n_defaults:], "", estimate_text(estimate)]
    console.result("\n".join(parts))


def estimate_text(estimate: RunEstimate | None) -> str:
    """Format the estimate of a run, in at most 80 columns."""
    from attnkit.plotting.progress_text import count, duration, size

    if estimate is None:
        return "no estimate: the input can be read only once"
    disk = "" if estimate.disk is None else f" and {size(estimate.disk)} of disk"
    lines = [
        f"{estimate.n_examples:,} {estimate.unit}, about {count(estimate.tokens_per_epoch)} tokens"
        f" and {estimate.steps_per_epoch:,} steps per epoch",
        f"{count(estimate.n_parameters)} parameters, about {size(estimate.memory)} of memory{disk}",
        f"{estimate.device}, {estimate.precision}",
    ]
    if estimate.seconds is not None:
        lines.append(f"about {duration(estimate.seconds)} of training (within a factor of three)")
    return "\n".join([*lines, *([estimate.note] if estimate.note else [])])


def follow(
    events: Iterator[Any], line: console.StatusLine, begin: Callable[[], None], handle: Callable[[Any], None]
) -> None:
    """Print progress events; pass all other events, the outcomes, to ``handle``.

    ``begin`` is called when training starts. The status line is cleared before ``handle`` is called.
    """
    from attnkit.data.prepared_dir import DataCheckEvent, WarningEvent
    from attnkit.engine.events import TrainingStarted
    from attnkit.plotting.progress_text import data_check_lines
    from attnkit.progress.training import TrainingLines

    lines = TrainingLines(line)
    for event in events:
        if isinstance(event, WarningEvent):
            lines.warn(event.text)
        elif isinstance(event, DataCheckEvent):
            line.clear()
            for text in data_check_lines(event.report):
                is_fault = event.report.severity == "stop" or text.startswith("warning: ")
                (console.alert if is_fault else console.info)(text)
            if event.report.severity == "stop" and event.report.trainable and not event.accepted:
                event.accepted = console.confirm(f"{event.report.verdict}\nTrain anyway?")
        else:
            if isinstance(event, TrainingStarted):
                begin()
            if not lines.show(event):
                handle(event)
