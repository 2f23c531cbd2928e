"""``attnkit pretrain-mlm``: raw text in, a pretrained encoder (BERT) out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from attnkit.cli._train import Given, begin
from attnkit.tasks.language_modeling.config import LanguagePreset


def command(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", help="Text, plain or compressed.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder to write.", metavar="RUN")] = Path("run"),
    valid: Annotated[list[str] | None, typer.Option(help="Validation text; repeatable.", metavar="FILE")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML configuration.", metavar="FILE")] = None,
    preset: Annotated[Literal["auto", LanguagePreset], typer.Option(help="Preset of all other keys.")] = "auto",
    vocab: Annotated[
        str | None, typer.Option(help="Existing vocabulary that has the symbol [MASK].", metavar="FILE")
    ] = None,
    units: Annotated[
        Literal["tokens", "words", "spans"] | None, typer.Option(help="Unit of masking. [default: tokens]")
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="Configuration key, e.g. masking.mask_prob=0.3.", metavar="KEY=VALUE"),
    ] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Maximum number of steps.")] = None,
    max_epochs: Annotated[float | None, typer.Option(help="Maximum number of epochs.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Maximum wall time in minutes.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of weights, order, masking and dropout.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"] | None, typer.Option(help="Device.")] = None,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"] | None, typer.Option(help="Floating-point precision.")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="CPU threads per operation.")] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Run to initialize weights and vocabulary from.", metavar="RUN")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Move an existing run of this name aside.")] = False,
    tensorboard: Annotated[bool | None, typer.Option("--tensorboard", help="Write TensorBoard event files.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the resolved configuration and an estimate; do not train.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Pretrain BERT by predicting masked tokens of raw text; run it again to resume.

    A document is a line, or a block of lines between blank ones. Each file is a corpus;
    data.language_sampling_alpha below 1 samples small corpora more often.

    \b
    Examples:
      attnkit pretrain-mlm text.txt -o bert --preset tiny
      attnkit pretrain-mlm a.en b.de -o bert --units words --set data.language_sampling_alpha=0.5
      attnkit pretrain-mlm text.txt -o bert --set model.next_sentence=true --dry-run
    """
    flags = {
        "task": "mlm",
        "data.files": files or None,
        "data.valid_files": valid,
        "vocabulary_files": None if vocab is None else [vocab],
        "masking.mask_unit": units,
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
