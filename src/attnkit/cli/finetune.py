"""``attnkit finetune``: a pretrained encoder and examples in, a fine-tuned model out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from attnkit.cli._train import RunOptions, run_training
from attnkit.cli.options import (
    ConfigFile,
    DryRun,
    Json,
    MaxEpochs,
    MaxMinutes,
    MaxSteps,
    Overwrite,
    RunOutput,
    Seed,
    TensorBoard,
    TrainingDevice,
    TrainingPrecision,
    TrainingThreads,
)
from attnkit.config import load_yaml
from attnkit.errors import UsageError
from attnkit.tasks.language_modeling.config import LanguagePreset

TASKS = ("text-classification", "token-classification", "question-answering")


def command(
    run: Annotated[Path, Argument(help="Pretrained run, of pretrain-mlm or import.", metavar="RUN")],
    task: Annotated[
        Literal["text-classification", "token-classification", "question-answering"] | None,
        Option(help="Task to fine-tune for."),
    ] = None,
    train: Annotated[list[str] | None, Option(help="Training examples; repeatable.", metavar="FILE")] = None,
    dev: Annotated[list[str] | None, Option(help="Validation examples. [default: held out]", metavar="FILE")] = None,
    output: RunOutput = Path("finetuned"),
    config: ConfigFile = None,
    preset: Annotated[
        Literal["auto", LanguagePreset],
        Option(help="Preset of all other keys; auto chooses it by the encoder's width."),
    ] = "auto",
    from_scratch: Annotated[
        bool | None,
        Option("--from-scratch", help="Keep architecture and vocabulary; initialize the weights anew."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        Option("--set", help="Configuration key, e.g. finetuning.freeze_layers=2.", metavar="KEY=VALUE"),
    ] = None,
    patience: Annotated[
        int | None, Option(min=1, help="Evaluations without improvement before training stops.")
    ] = None,
    max_steps: MaxSteps = None,
    max_epochs: MaxEpochs = None,
    max_minutes: MaxMinutes = None,
    seed: Seed = None,
    device: TrainingDevice = None,
    precision: TrainingPrecision = None,
    threads: TrainingThreads = None,
    overwrite: Overwrite = False,
    tensorboard: TensorBoard = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Fine-tune a pretrained encoder for a task; run it again to resume.

    File formats: for text-classification, tab-separated tables with a header (columns label, text and optionally
    text2); for token-classification, CoNLL (one word and its tag per line, a blank line after each sentence); for
    question-answering, SQuAD JSON.

    \b
    Examples:
      attnkit finetune bert --task text-classification --train train.tsv \\
        --dev dev.tsv
      attnkit finetune bert --task token-classification --train train.conll
      attnkit finetune bert --task question-answering --train squad.json -o reader
      attnkit finetune bert --task text-classification --train train.tsv \\
        --set finetuning.freeze_layers=1 --set finetuning.class_weights=balanced
    """
    if task is None:
        _check_task_given(config)
    flags = {
        "task": task,
        "data.files": train or None,
        "data.valid_files": dev or None,
        "finetuning.from_scratch": from_scratch,
        "limits.early_stopping_patience": patience,
        "limits.max_steps": max_steps,
        "limits.max_epochs": max_epochs,
        "limits.max_minutes": max_minutes,
        "seed": seed,
        "device": device,
        "precision": precision,
        "threads": threads,
        "tensorboard": tensorboard,
    }
    run_training(flags, RunOptions(output, config, preset, sets, run, overwrite, dry_run, json))


def _check_task_given(config: Path | None) -> None:
    """Raise ``UsageError`` unless the configuration file names a fine-tuning task."""
    help = "choose text-classification, token-classification or question-answering"
    if config is None or not config.is_file():  # a pipe can be read once, and is read by others
        raise UsageError("no task given", where="--task", help=help)
    name = load_yaml(config).get("task")
    if name not in TASKS:
        found = "names no task" if name is None else f"names the task '{str(name)[:40]}'"
        what = f"{config} {found}; expected one of {', '.join(TASKS)}"
        raise UsageError(what, where="--task", help=help)
