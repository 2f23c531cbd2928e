"""``attnkit train``: two text files in, a scored model out."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attnkit import console
from attnkit.commands.progress import follow
from attnkit.config import flatten
from attnkit.errors import StoppedError, UsageError
from attnkit.models.config import ModelKind
from attnkit.tasks.presets import Preset

if TYPE_CHECKING:
    from attnkit.tasks.resolve import Resolved
    from attnkit.tasks.translation import Finished, Request


def command(
    src: Annotated[list[str] | None, typer.Option(help="Source text; repeatable.", metavar="FILE")] = None,
    tgt: Annotated[list[str] | None, typer.Option(help="Target text, as often as --src.", metavar="FILE")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder.", metavar="RUN")] = Path("run"),
    weight: Annotated[list[float] | None, typer.Option(help="Of each pair of files: 2 is twice an epoch.")] = None,
    valid_src: Annotated[list[str] | None, typer.Option(help="Validation source.", metavar="FILE")] = None,
    valid_tgt: Annotated[list[str] | None, typer.Option(help="Validation target.", metavar="FILE")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML configuration.", metavar="FILE")] = None,
    preset: Annotated[Literal["auto", Preset], typer.Option(help="Chooses the rest.")] = "auto",
    model: Annotated[ModelKind | None, typer.Option(help="Architecture.")] = None,
    vocab: Annotated[
        list[str] | None, typer.Option(help="Vocabulary made before; twice for source and target.", metavar="FILE")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Any key, as model.d_model=512.", metavar="KEY=VALUE")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps.")] = None,
    max_epochs: Annotated[float | None, typer.Option(help="Stop after so many passes over the data.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop after so much wall time.")] = None,
    average: Annotated[int | None, typer.Option(min=0, help="Average the last N checkpoints at the end.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of weights, order, dropout.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"] | None, typer.Option(help="Where to compute.")] = None,
    precision: Annotated[Literal["auto", "float32", "bfloat16"] | None, typer.Option(help="Of the arithmetic.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of one operation.")] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Begin with another run's weights and vocabulary.", metavar="RUN")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Move an old run of this name aside.")] = False,
    tensorboard: Annotated[bool | None, typer.Option("--tensorboard", help="Write event files.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Train a translation model from line-aligned text; run it again to go on.

    \b
    Examples:
      attnkit train --src a.en --tgt a.de -o run
      attnkit train --src a.en --tgt a.de -o run --model rnn --max-minutes 40
      attnkit train --config examples/multi30k.yaml -o run --set seed=2 --dry-run
    """
    from attnkit.runs.lock import refuse_in_use
    from attnkit.tasks.initial import inherited, preset_of
    from attnkit.tasks.resolve import resolve

    if not dry_run and os.environ.get("RANK", "0") == "0":  # the others would find the first one's lock
        refuse_in_use(output)
    flags = {
        "data.src": src,
        "data.tgt": tgt,
        "data.weights": weight,
        "data.valid_src": valid_src,
        "data.valid_tgt": valid_tgt,
        "vocabulary_files": vocab,
        "model.kind": model,
        "limits.steps": max_steps,
        "limits.epochs": max_epochs,
        "limits.minutes": max_minutes,
        "checkpoints.average": average,
        "seed": seed,
        "device": device,
        "precision": precision,
        "threads": threads,
        "tensorboard": tensorboard,
    }
    earlier = None if overwrite else preset_of(output)
    fixed = inherited(init_from, None if overwrite else output) if init_from is not None else None
    resolved = resolve(flags, sets=sets or [], file=config, preset_name=preset, earlier=earlier, fixed=fixed)
    if resolved.config.checkpoints.average == 1:
        raise UsageError(
            "an average takes two checkpoints or more",
            where=f"checkpoints.average ({resolved.origin('checkpoints.average')})",
            help="0 makes none",
        )
    if dry_run:
        show_plan(resolved, init_from, json)
        return
    from attnkit.runs.launch import refuse_repeat

    refuse_repeat(output)  # before torch is loaded
    from attnkit.tasks.translation import Request

    run(Request(resolved.config, output, overwrite, init_from), json)


def run(request: Request, json: bool) -> None:
    """Train, as the one process or as one of several of which the first alone speaks."""
    from attnkit.runtime import StopRequests, launched_rank
    from attnkit.tasks.translation import train

    rank = launched_rank()
    with StopRequests() as stop, console.muted(bool(rank)):
        events = train(replace(request, stop=stop))
        try:
            try:
                for outcome in follow(events, stop.defer):
                    show(outcome, request.path, json)
            except (KeyboardInterrupt, SystemExit) as asked:
                events.throw(asked)  # where it was not training that was interrupted, but the telling of it
        except StoppedError as stopped:
            if rank is None:
                raise
            console.note(stopped.what)  # ending with 0: another code makes torchrun kill and restart its processes


def show(done: Finished, output: Path, json: bool) -> None:
    """Print the outcome."""
    from attnkit.views.training import scores

    if json:
        console.result(dumps(asdict(done)))
    elif done.already:
        console.result(f"{output} is finished: {done.step:,} steps. A larger limit goes on, --overwrite anew.")
    else:
        said = f"done: {done.step:,} steps ({done.reason}); best: {done.best}"
        console.result(f"{said}\n{scores(done.metrics)}\ntry: {console.command('translate', output)}")


def show_plan(resolved: Resolved, init_from: Path | None, json: bool) -> None:
    """Print the resolved configuration with the origin of each value, and what the run would take."""
    from attnkit.tasks.plan import plan
    from attnkit.views.training import count, size

    found = plan(resolved.config, init_from)
    values = flatten(resolved.config.model_dump(mode="json"))
    if json:
        values = {key: {"value": value, "origin": resolved.origin(key)} for key, value in values.items()}
        shown = {"preset": resolved.config.preset, "configuration": values, "plan": asdict(found)}
        console.result(dumps(shown, indent=1))
    else:
        per_epoch = f"about {count(found.tokens_per_epoch)} tokens and {found.steps_per_epoch:,} steps an epoch"
        takes = f"{count(found.n_parameters)} parameters, about {size(found.memory)} of memory"
        rows = [(key, "null" if v is None else str(v), resolved.origin(key)) for key, v in values.items()]
        console.result(console.table(rows) + f"\n\n{found.n_pairs:,} pairs, {per_epoch}")
        console.result(f"{takes}, {found.device}, {found.precision}")
