"""``attnkit pretrain-mlm``: raw text in, a pretrained encoder (BERT) out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from attnkit.cli._train import Given, begin
from attnkit.cli.options import (
    ConfigFile,
    DryRun,
    InitFrom,
    Json,
    MaxEpochs,
    MaxMinutes,
    MaxSteps,
    Overwrite,
    RunOutput,
    Seed,
    TensorBoard,
    Text,
    TrainingDevice,
    TrainingPrecision,
    TrainingThreads,
    ValidText,
)
from attnkit.tasks.language_modeling.config import LanguagePreset


def command(
    files: Text = None,
    output: RunOutput = Path("run"),
    valid: ValidText = None,
    config: ConfigFile = None,
    preset: Annotated[Literal["auto", LanguagePreset], Option(help="Preset of all other keys.")] = "auto",
    vocab: Annotated[str | None, Option(help="Existing vocabulary that has the symbol [MASK].", metavar="FILE")] = None,
    units: Annotated[
        Literal["tokens", "words", "spans"] | None, Option(help="Unit of masking. [default: tokens]")
    ] = None,
    sets: Annotated[
        list[str] | None,
        Option("--set", help="Configuration key, e.g. masking.mask_prob=0.3.", metavar="KEY=VALUE"),
    ] = None,
    max_steps: MaxSteps = None,
    max_epochs: MaxEpochs = None,
    max_minutes: MaxMinutes = None,
    seed: Seed = None,
    device: TrainingDevice = None,
    precision: TrainingPrecision = None,
    threads: TrainingThreads = None,
    init_from: InitFrom = None,
    overwrite: Overwrite = False,
    tensorboard: TensorBoard = None,
    dry_run: DryRun = False,
    json: Json = False,
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
