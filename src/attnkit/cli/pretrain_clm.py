"""``attnkit pretrain-clm``: raw text in, a pretrained decoder (GPT) out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from attnkit.cli import options
from attnkit.cli._train import RunOptions, configuration_keys, run_training
from attnkit.tasks.language_modeling.config import Direction, LanguagePreset


def command(
    files: options.Text = None,
    output: options.RunOutput = Path("run"),
    direction: Annotated[Direction | None, Option(help="Reading direction. [default: left-to-right]")] = None,
    valid: options.ValidText = None,
    config: options.ConfigFile = None,
    preset: Annotated[Literal["auto", LanguagePreset], Option(help="Preset of all other keys.")] = "auto",
    vocab: Annotated[str | None, Option(help="Existing vocabulary.", metavar="FILE")] = None,
    sets: options.Sets = None,
    max_steps: options.MaxSteps = None,
    max_epochs: options.MaxEpochs = None,
    max_minutes: options.MaxMinutes = None,
    seed: options.Seed = None,
    device: options.TrainingDevice = None,
    precision: options.TrainingPrecision = None,
    threads: options.TrainingThreads = None,
    init_from: options.InitFrom = None,
    overwrite: options.Overwrite = False,
    tensorboard: options.TensorBoard = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Pretrain GPT by predicting the next token of raw text; run it again to resume.

    A document is a line, or a block of lines between blank ones.

    \b
    Examples:
      attnkit pretrain-clm text.txt -o gpt --preset tiny
      attnkit pretrain-clm text.txt -o backwards --direction right-to-left
      attnkit pretrain-clm text.txt -o gpt --set model.positions=rotary --dry-run
    """
    keys = {"files": "data.files", "valid": "data.valid_files", "direction": "direction"}
    flags = {"task": "clm", "vocabulary_files": None if vocab is None else [vocab]}
    run = RunOptions(output, config, preset, sets, init_from, overwrite, dry_run, json)
    run_training({**flags, **configuration_keys(locals(), keys)}, run)
