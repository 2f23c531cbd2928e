"""``attnkit pretrain-clm``: raw text in, a pretrained decoder (GPT) out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from attnkit.cli._train import Given, begin
from attnkit.tasks.language_modeling.config import Direction, LanguagePreset


def command(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", help="Text, plain or compressed.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder.", metavar="RUN")] = Path("run"),
    direction: Annotated[
        Direction | None, typer.Option(help="In which order text is read. [default: left-to-right]")
    ] = None,
    valid: Annotated[list[str] | None, typer.Option(help="Text for validation; repeatable.", metavar="FILE")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML configuration.", metavar="FILE")] = None,
    preset: Annotated[Literal["auto", LanguagePreset], typer.Option(help="Chooses the rest.")] = "auto",
    vocab: Annotated[str | None, typer.Option(help="Vocabulary made before.", metavar="FILE")] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Any key, as model.n_layers=6.", metavar="KEY=VALUE")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps.")] = None,
    max_epochs: Annotated[float | None, typer.Option(help="Stop after so many passes over the text.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop after so much wall time.")] = None,
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
    """Pretrain GPT: read raw text and learn to guess each next word; run it again to go on.

    Documents are lines, or the lines between blank ones.

    \b
    Examples:
      attnkit pretrain-clm text.txt -o gpt --preset tiny
      attnkit pretrain-clm text.txt -o backwards --direction right-to-left
      attnkit pretrain-clm text.txt -o gpt --set model.positions=rotary --dry-run
    """
    flags = {
        "task": "clm",
        "data.files": files or None,
        "data.valid_files": valid,
        "vocabulary_files": None if vocab is None else [vocab],
        "direction": direction,
        "limits.max_steps": max_steps,
        "limits.max_epochs": max_epochs,
        "limits.max_minutes": max_minutes,
        "seed": seed,
        "device": device,
        "precision": precision,
        "threads": threads,
        "tensorboard": tensorboard,
    }
    begin(flags, Given(output, config, preset, sets, init_from, overwrite, dry_run, json))
