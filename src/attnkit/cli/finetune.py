"""``attnkit finetune``: fine-tuning of a pretrained encoder."""

from pathlib import Path
from typing import Annotated, Literal, get_args

from typer import Argument, Option

from attnkit.cli._train import TrainingOptions, run_training, with_training_options
from attnkit.cli.options import RunOutput
from attnkit.engine.names import LanguagePreset
from attnkit.errors import UsageError

FinetuningTask = Literal["text-classification", "token-classification", "question-answering"]
TASKS = get_args(FinetuningTask)


@with_training_options
def command(
    run: Annotated[Path, Argument(help="Pretrained run from pretrain-mlm or import.", metavar="RUN")],
    task: Annotated[FinetuningTask | None, Option(help="Task to fine-tune for.")] = None,
    train: Annotated[list[str] | None, Option(help="Training examples; repeatable.", metavar="FILE")] = None,
    dev: Annotated[list[str] | None, Option(help="Validation examples. [default: held out]", metavar="FILE")] = None,
    output: RunOutput = Path("finetuned"),
    preset: Annotated[
        Literal["auto", LanguagePreset], Option(help="Preset; auto selects one by encoder width.")
    ] = "auto",
    from_scratch: Annotated[
        bool | None, Option(help="Keep architecture and vocabulary, but initialize the weights randomly.")
    ] = None,
    patience: Annotated[int | None, Option(min=1, help="Evaluations without improvement before stopping.")] = None,
    *,
    training: TrainingOptions,
) -> None:
    """Fine-tune a pretrained encoder for a task; rerun the command to resume.

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
      attnkit finetune bert --task text-classification --train train.tsv \\
        --set adapter.kind=lora
    """
    from attnkit.config import load_yaml

    config = training.config
    help = "choose text-classification, token-classification or question-answering"
    if task is None and (config is None or not config.is_file()):  # a pipe can be read only once: not here
        raise UsageError("no task given", where="--task", help=help)
    if task is None and config is not None and (name := load_yaml(config).get("task")) not in TASKS:
        found = "does not name a task" if name is None else f"names the task '{str(name)[:40]}'"
        raise UsageError(f"{config} {found}; expected one of {', '.join(TASKS)}", where="--task", help=help)
    flags: dict[str, object] = {"task": task, "data.files": train or None, "data.valid_files": dev or None}
    flags |= {"finetuning.from_scratch": from_scratch, "limits.early_stopping_patience": patience}
    run_training(flags, training, output, preset=preset, init_from=run)
