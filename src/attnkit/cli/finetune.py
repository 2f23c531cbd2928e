"""``attnkit finetune``: a pretrained encoder and examples in, a classifier, tagger or reader out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from attnkit.cli._train import Given, begin
from attnkit.config import load_yaml
from attnkit.errors import UsageError
from attnkit.tasks.language_modeling.config import LanguagePreset

TASKS = ("text-classification", "token-classification", "question-answering")


def command(
    run: Annotated[Path, typer.Argument(help="Run of pretrain-mlm, or of import.", metavar="RUN")],
    task: Annotated[
        Literal["text-classification", "token-classification", "question-answering"] | None,
        typer.Option(help="Task to fine-tune for."),
    ] = None,
    train: Annotated[list[str] | None, typer.Option(help="Examples; repeatable.", metavar="FILE")] = None,
    dev: Annotated[
        list[str] | None, typer.Option(help="Examples for validation. [default: held out]", metavar="FILE")
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder.", metavar="RUN")] = Path("finetuned"),
    config: Annotated[Path | None, typer.Option(help="YAML configuration.", metavar="FILE")] = None,
    preset: Annotated[
        Literal["auto", LanguagePreset], typer.Option(help="Chooses the rest; auto goes by the encoder's width.")
    ] = "auto",
    from_scratch: Annotated[
        bool | None, typer.Option("--from-scratch", help="Its architecture and vocabulary, but fresh weights.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Any key, as finetuning.freeze_layers=2.", metavar="KEY=VALUE")
    ] = None,
    patience: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many evaluations without a better one.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps.")] = None,
    max_epochs: Annotated[float | None, typer.Option(help="Stop after so many passes over the examples.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop after so much wall time.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the head's weights, order, dropout.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"] | None, typer.Option(help="Where to compute.")] = None,
    precision: Annotated[Literal["auto", "float32", "bfloat16"] | None, typer.Option(help="Of the arithmetic.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of one operation.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Move an old run of this name aside.")] = False,
    tensorboard: Annotated[bool | None, typer.Option("--tensorboard", help="Write event files.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Fine-tune a pretrained encoder for a task; run it again to go on.

    To classify, a file is a table: a first line that names its columns, label, text and perhaps text2, and tabs between
    them. To tag, a word and its tag a line, a blank line after each sentence. To answer, JSON as SQuAD has it.

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
        _refuse_untold(config)
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
    begin(flags, Given(output, config, preset, sets, run, overwrite, dry_run, json))


def _refuse_untold(config: Path | None) -> None:
    """Raise ``UsageError`` where no file says what kind of run is wanted, or one of another command."""
    help = "give one of text-classification, token-classification and question-answering"
    if config is None or not config.is_file():  # a pipe can be read once, and is read by others
        raise UsageError("it is not said what to fine-tune for", where="--task", help=help)
    name = load_yaml(config).get("task")
    if name not in TASKS:
        said = "names no task" if name is None else f"names the task '{str(name)[:40]}'"
        what = f"{config} {said}, and finetune knows {', '.join(TASKS)}"
        raise UsageError(what, where="--task", help=help)
