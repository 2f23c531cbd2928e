"""``attnkit plan``: size, memory and time of a training run before it starts."""

from __future__ import annotations

import textwrap
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from attnkit.cli.options import AnyPreset, InitFrom, Json, Quiet, Threads

if TYPE_CHECKING:
    from attnkit.engine.plan import TrainingPlan


def command(
    src: Annotated[list[str] | None, Option(help="Source text; repeatable.", metavar="FILE")] = None,
    tgt: Annotated[list[str] | None, Option(help="Target text; once per --src.", metavar="FILE")] = None,
    data: Annotated[list[str] | None, Option(help="Text of a language model; repeatable.", metavar="FILE")] = None,
    task: Annotated[
        Literal["translation", "mlm", "clm"] | None, Option(help="Task. [default: translation]", show_default=False)
    ] = None,
    tokens: Annotated[float | None, Option(help="Tokens of the corpus, instead of files.", metavar="N")] = None,
    examples: Annotated[
        int | None, Option(min=2, help="Pairs or documents of the corpus, instead of files.", metavar="N")
    ] = None,
    preset: AnyPreset = "auto",
    config: Annotated[Path | None, Option(help="YAML configuration of the run.")] = None,
    sets: Annotated[
        list[str] | None, Option("--set", help="Configuration key; repeatable.", metavar="KEY=VALUE")
    ] = None,
    init_from: InitFrom = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"] | None, Option(help="Device.")] = None,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"] | None, Option(help="Floating-point precision.")
    ] = None,
    threads: Threads = None,
    devices: Annotated[int, Option(min=1, help="Number of devices that share the work.", metavar="N")] = 1,
    hours: Annotated[float | None, Option(help="Hours that the run may take; default: as configured.")] = None,
    rate: Annotated[
        float | None, Option(help="Tokens per second of one device, measured elsewhere.", metavar="N")
    ] = None,
    seconds: Annotated[float, Option(min=0.1, help="Seconds of training steps to measure the rate.")] = 10.0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Plan a training run: parameters, tokens, memory, hours; nothing is written.

    \b
    Examples:
      attnkit plan --src a.en --tgt a.de
      attnkit plan --task clm --data text.txt --hours 8
      attnkit plan --task mlm --tokens 1e9 --devices 8 --rate 2e5
      attnkit plan --examples 5000000 --preset base --rate 5e4 --json

    The rate is that of training steps of this model on random text. Several devices are assumed to lose nothing.
    """
    from attnkit.engine.plan import PlanRequest, plan
    from attnkit.progress import console

    settings: dict[str, Any] = {"task": task, "data.src": src, "data.tgt": tgt, "data.files": data}
    settings |= {"device": device, "precision": precision, "threads": threads}
    request = PlanRequest(
        settings=settings,
        sets=sets or [],
        file=config,
        preset=preset,
        init_from=init_from,
        examples=examples,
        tokens=tokens,
        devices=devices,
        hours=hours,
        rate=rate,
        seconds=seconds,
    )
    found = plan(request, console.info)
    console.result(dumps(found.to_dict(), indent=1) if json else plan_text(found))


def plan_text(plan: TrainingPlan) -> str:
    """Format a plan as a table."""
    from attnkit.plotting.progress_text import count, duration, size
    from attnkit.progress import console

    devices = f"{plan.n_devices} x {plan.device}" if plan.n_devices > 1 else plan.device
    rate = f"{count(round(plan.tokens_per_second))} tokens/s"
    rows = [
        ("model", f"{plan.model}, preset {plan.preset}, {count(plan.n_parameters)} parameters"),
        ("corpus", f"{plan.n_examples:,} {plan.unit}, {count(plan.tokens_per_epoch)} tokens per epoch"),
        (
            "run",
            f"{count(plan.tokens)} tokens, {plan.steps:,} steps, {plan.epochs:.3g} epochs (limit: {plan.limited_by})",
        ),
        ("device", f"{devices}, {plan.precision}, {rate} {'measured' if plan.is_measured else 'given'}"),
        ("memory", f"{size(plan.memory)} per device"),
        *((f"  {name}", size(n_bytes)) for name, n_bytes in plan.memory_parts.items()),
        ("time", f"{duration(3600 * plan.hours)} of training steps"),
        ("device-hours", f"{plan.device_hours:.3g}"),
    ]
    advice = [textwrap.fill(text, console.width(), subsequent_indent="  ") for text in plan.advice]
    return "\n".join([console.table(rows), *advice])
