"""``attnkit pretrain-mlm``: raw text in, a pretrained encoder (BERT) out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from attnkit.cli import options
from attnkit.cli._train import RunOptions, configuration_keys, run_training
from attnkit.tasks.language_modeling.config import LanguagePreset


def command(
    files: options.Text = None,
    output: options.RunOutput = Path("run"),
    valid: options.ValidText = None,
    config: options.ConfigFile = None,
    preset: Annotated[Literal["auto", LanguagePreset], Option(help="Preset of all other keys.")] = "auto",
    vocab: Annotated[str | None, Option(help="Existing vocabulary that has the symbol [MASK].", metavar="FILE")] = None,
    units: Annotated[
        Literal["tokens", "words", "spans"] | None, Option(help="Unit of masking. [default: tokens]")
    ] = None,
    sets: Annotated[
        list[str] | None,
        Option("--set", help="Configuration key, e.g. masking.mask_prob=0.3.", metavar="KEY=VALUE"),
    ] = None,
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
    """Pretrain BERT by predicting masked tokens of raw text; run it again to resume.

    A document is a line, or a block of lines between blank ones. Each file is a corpus;
    data.language_sampling_alpha below 1 samples small corpora more often.

    \b
    Examples:
      attnkit pretrain-mlm text.txt -o bert --preset tiny
      attnkit pretrain-mlm a.en b.de -o bert --units words --set data.language_sampling_alpha=0.5
      attnkit pretrain-mlm text.txt -o bert --set model.next_sentence=true --dry-run
    """
    keys = {"files": "data.files", "valid": "data.valid_files", "units": "masking.mask_unit"}
    flags = {"task": "mlm", "vocabulary_files": None if vocab is None else [vocab]}
    run = RunOptions(output, config, preset, sets, init_from, overwrite, dry_run, json)
    run_training({**flags, **configuration_keys(locals(), keys)}, run)
