"""``attnkit pretrain-mlm``: raw text in, a pretrained encoder (BERT) out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from attnkit.cli._train import Given, begin
from attnkit.tasks.language_modeling.config import LanguagePreset


def command(
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE...", help="Text, plain or compressed.")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder.", metavar="RUN")] = Path("run"),
    valid: Annotated[list[str] | None, typer.Option(help="Text for validation; repeatable.", metavar="FILE")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML configuration.", metavar="FILE")] = None,
    preset: Annotated[Literal["auto", LanguagePreset], typer.Option(help="Chooses the rest.")] = "auto",
    vocab: Annotated[str | None, typer.Option(help="Vocabulary made before, with [MASK].", metavar="FILE")] = None,
    units: Annotated[
        Literal["tokens", "words", "spans"] | None, typer.Option(help="What is hidden at once. [default: tokens]")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Any key, as masking.mask_prob=0.3.", metavar="KEY=VALUE")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps.")] = None,
    max_epochs: Annotated[float | None, typer.Option(help="Stop after so many passes over the text.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop after so much wall time.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of weights, order, hidden words, dropout.")] = None,
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
    """Pretrain BERT: hide words of raw text and learn to guess them; run it again to go on.

    Documents are lines, or the lines between blank ones. Several files are several corpora, of which
    data.language_sampling_alpha below 1 lets the small ones count for more.

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
