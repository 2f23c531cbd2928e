"""``attnkit train``: train and evaluate a model of any task."""

from pathlib import Path
from typing import Annotated

from typer import Option

from attnkit.cli import options
from attnkit.cli._train import TrainingOptions, run_training, with_training_options
from attnkit.engine.names import ModelName, TaskName
from attnkit.errors import UsageError


@with_training_options
def command(
    src: Annotated[list[str] | None, Option(help="Source text, or TABLE:FIELD; repeatable.", metavar="FILE")] = None,
    tgt: Annotated[list[str] | None, Option(help="Target text; once per --src.", metavar="FILE")] = None,
    pair: Annotated[
        list[str] | None,  # three values each, which main.join_values joins
        Option(help="Languages and files of a direction: en:de a.en a.de; repeatable.", metavar="A:B SRC TGT"),
    ] = None,
    valid_pair: Annotated[
        list[str] | None, Option(help="Validation files of a direction; repeatable.", metavar="A:B SRC TGT")
    ] = None,
    bidirectional: Annotated[bool | None, Option(help="Train each pair of files in both directions.")] = None,
    denoise: Annotated[
        list[str] | None,
        Option(help="Text to restore after corruption, before training on pairs; repeatable.", metavar="FILE"),
    ] = None,
    output: options.RunOutput = Path("run"),
    weight: Annotated[list[float] | None, Option(help="Sampling weight of a file pair; 2: twice per epoch.")] = None,
    task: Annotated[
        TaskName | None,
        Option(metavar="TASK", help="Task: translation (default), autoencode, text-classification, word2vec."),
    ] = None,
    data: Annotated[list[str] | None, Option(help="Input file for other tasks; repeatable.", metavar="FILE")] = None,
    valid_data: Annotated[
        list[str] | None, Option(help="Validation file for --data or --denoise.", metavar="FILE")
    ] = None,
    valid_src: Annotated[list[str] | None, Option(help="Validation source; repeatable.", metavar="FILE")] = None,
    valid_tgt: Annotated[
        list[str] | None, Option(help="Validation target; once per --valid-src.", metavar="FILE")
    ] = None,
    preset: options.AnyPreset = "auto",
    model: Annotated[ModelName | None, Option(help="Architecture.")] = None,
    vocab: Annotated[
        list[str] | None,
        Option(help="Existing vocabulary; repeat for separate source and target vocabularies.", metavar="FILE"),
    ] = None,
    accept_data: Annotated[bool | None, Option(help="Train even if the check of the files advises against it.")] = None,
    average: Annotated[int | None, Option(min=0, help="Average the last N checkpoints at the end.")] = None,
    init_from: Annotated[
        Path | None,
        Option(
            help="Run to initialize from: a translation model (weights and vocabulary) or BERT (encoder).",
            metavar="RUN",
        ),
    ] = None,
    add_symbols: Annotated[
        list[str] | None, Option(help="Symbol to add to the vocabulary of --init-from; repeatable.", metavar="SYMBOL")
    ] = None,
    extend_vocab: Annotated[
        list[str] | None,
        Option(help="Text for which entries are added to that vocabulary; repeatable.", metavar="FILE"),
    ] = None,
    mix: Annotated[
        tuple[str, str] | None,
        Option(help="General text mixed in with --init-from, against forgetting.", metavar="SRC TGT"),
    ] = None,
    *,
    training: TrainingOptions,
) -> None:
    """Train a model for translation or another --task; rerun the command to resume.

    \b
    Examples:
      attnkit train --src a.en --tgt a.de -o run
      attnkit train --src a.en --tgt a.de -o run --model rnn --max-minutes 40
      attnkit train --config examples/multi30k.yaml --src a.en --tgt a.de \\
        --dry-run
      attnkit train --src a.en --tgt a.de -o run --set data.placeholders=true
      attnkit train --src a.en --tgt a.de --bidirectional -o both
      attnkit train --pair en:de a.en a.de --pair de:en b.de b.en -o many
      attnkit train --src a.en --tgt a.de -o run --init-from bert
      attnkit train --denoise a.en --denoise a.de -o restored
      attnkit train --pair en:de a.en a.de -o run --init-from restored
      attnkit train --src a.en --tgt a.de -o new --init-from run1 \\
        --set adapter.kind=lora --mix b.en b.de
      attnkit train --src a.en --tgt a.de -o new --init-from run1 \\
        --add-symbols '<med>' --extend-vocab a.de
      attnkit train --task autoencode --data lines.txt -o codes
      attnkit train --task text-classification --data reviews.tsv -o labels
    """
    flags: dict[str, object] = {"task": task, "data.files": data, "data.valid_files": valid_data}
    flags |= {"data.src": src, "data.tgt": tgt, "data.weights": weight, "data.accept": accept_data}
    flags |= {"data.pairs": split_values(pair), "data.valid_pairs": split_values(valid_pair)}
    flags |= {"data.bidirectional": bidirectional}
    flags |= {"data.valid_src": valid_src, "data.valid_tgt": valid_tgt, "vocabulary_files": vocab}
    flags |= {"extension.symbols": add_symbols, "extension.files": extend_vocab}
    if mix is not None:
        flags |= {"data.mix_src": [mix[0]], "data.mix_tgt": [mix[1]]}
    if denoise is not None:
        flags |= denoising_flags(flags, denoise)
    flags |= {"model.kind": model, "checkpoints.average": average}
    run_training(flags, training, output, preset=preset, init_from=init_from)


def denoising_flags(flags: dict[str, object], files: list[str]) -> dict[str, object]:
    """Return the flags of ``--denoise``: the files as both sides.

    Raises ``UsageError`` if pairs or another task are given, too.
    """
    others = {"data.src": "--src", "data.tgt": "--tgt", "data.pairs": "--pair", "data.files": "--data"}
    others |= {"data.valid_src": "--valid-src", "data.valid_tgt": "--valid-tgt", "data.valid_pairs": "--valid-pair"}
    others |= {"data.mix_src": "--mix", "data.bidirectional": "--bidirectional"}
    if clash := [option for key, option in others.items() if flags.get(key)]:
        what = f"--denoise and {clash[0]} cannot be combined"
        help = "use --valid-data FILE" if "valid" in clash[0] else "train on pairs afterwards, with --init-from"
        raise UsageError(what, help=help)
    if flags.get("task") not in (None, "translation"):
        raise UsageError(f"--denoise and --task {flags['task']} cannot be combined", help="leave out --task")
    sides = ("data.src", "data.tgt", "data.valid_src", "data.valid_tgt")
    valid = flags["data.valid_files"]
    return {**dict(zip(sides, (files, files, valid, valid), strict=True)), "data.valid_files": None, "data.denoise": {}}


def split_values(joined: list[str] | None) -> list[list[str]] | None:
    """Return the languages and files of each ``--pair``."""
    return None if joined is None else [text.split("\0") for text in joined]
