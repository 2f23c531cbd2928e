"""``attnkit pretrain-clm``: raw text in, a pretrained decoder (GPT) out."""

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
    Sets,
    TensorBoard,
    Text,
    TrainingDevice,
    TrainingPrecision,
    TrainingThreads,
    ValidText,
)
from attnkit.tasks.language_modeling.config import Direction, LanguagePreset


def command(
    files: Text = None,
    output: RunOutput = Path("run"),
    direction: Annotated[Direction | None, Option(help="Reading direction. [default: left-to-right]")] = None,
    valid: ValidText = None,
    config: ConfigFile = None,
    preset: Annotated[Literal["auto", LanguagePreset], Option(help="Preset of all other keys.")] = "auto",
    vocab: Annotated[str | None, Option(help="Existing vocabulary.", metavar="FILE")] = None,
    sets: Sets = None,
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
    """Pretrain GPT by predicting the next token of raw text; run it again to resume.

    A document is a line, or a block of lines between blank ones.

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
