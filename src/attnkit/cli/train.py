"""``attnkit train``: text or vectors in, a scored model out, whatever the task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from attnkit.cli._train import Given, begin
from attnkit.engine.run_config import ModelName, Preset, TaskName


def command(
    src: Annotated[list[str] | None, typer.Option(help="Source text; repeatable.", metavar="FILE")] = None,
    tgt: Annotated[list[str] | None, typer.Option(help="Target text, as often as --src.", metavar="FILE")] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="Run folder.", metavar="RUN")] = Path("run"),
    weight: Annotated[list[float] | None, typer.Option(help="Of each pair of files: 2 is twice an epoch.")] = None,
    task: Annotated[
        TaskName | None,
        typer.Option(metavar="TASK", help="Task: translation (default), autoencode, text-classification, word2vec."),
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="Of tasks but translation: lines, vectors or documents.", metavar="FILE")
    ] = None,
    valid_data: Annotated[list[str] | None, typer.Option(help="The same for validation.", metavar="FILE")] = None,
    valid_src: Annotated[list[str] | None, typer.Option(help="Validation source.", metavar="FILE")] = None,
    valid_tgt: Annotated[list[str] | None, typer.Option(help="Validation target.", metavar="FILE")] = None,
    config: Annotated[Path | None, typer.Option(help="YAML configuration.", metavar="FILE")] = None,
    preset: Annotated[Literal["auto", Preset], typer.Option(help="Chooses the rest.")] = "auto",
    model: Annotated[ModelName | None, typer.Option(help="Architecture.")] = None,
    vocab: Annotated[
        list[str] | None, typer.Option(help="Vocabulary made before; twice for source and target.", metavar="FILE")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="Any key, as model.d_model=512.", metavar="KEY=VALUE")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps.")] = None,
    max_epochs: Annotated[float | None, typer.Option(help="Stop after so many passes over the data.")] = None,
    max_minutes: Annotated[float | None, typer.Option(help="Stop after so much wall time.")] = None,
    average: Annotated[int | None, typer.Option(min=0, help="Average the last N checkpoints at the end.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of weights, order, dropout.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"] | None, typer.Option(help="Where to compute.")] = None,
    precision: Annotated[Literal["auto", "float32", "bfloat16"] | None, typer.Option(help="Of the arithmetic.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Of one operation.")] = None,
    init_from: Annotated[
        Path | None, typer.Option(help="Begin with another run's weights and vocabulary, or BERT's.", metavar="RUN")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Move an old run of this name aside.")] = False,
    tensorboard: Annotated[bool | None, typer.Option("--tensorboard", help="Write event files.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Report as JSON.")] = False,
) -> None:
    """Train a model from text, translation unless --task says else; run it again to go on.

    \b
    Examples:
      attnkit train --src a.en --tgt a.de -o run
      attnkit train --src a.en --tgt a.de -o run --model rnn --max-minutes 40
      attnkit train --config examples/multi30k.yaml -o run --set seed=2 --dry-run
      attnkit train --src a.en --tgt a.de -o run --init-from bert
      attnkit train --task autoencode --data lines.txt -o codes
      attnkit train --task text-classification --data reviews.tsv -o labels
    """
    flags = {
        "task": task,
        "data.files": data,
        "data.valid_files": valid_data,
        "data.src": src,
        "data.tgt": tgt,
        "data.weights": weight,
        "data.valid_src": valid_src,
        "data.valid_tgt": valid_tgt,
        "vocabulary_files": vocab,
        "model.kind": model,
        "limits.max_steps": max_steps,
        "limits.max_epochs": max_epochs,
        "limits.max_minutes": max_minutes,
        "checkpoints.average": average,
        "seed": seed,
        "device": device,
        "precision": precision,
        "threads": threads,
        "tensorboard": tensorboard,
    }
    begin(flags, Given(output, config, preset, sets, init_from, overwrite, dry_run, json))
