"""``attnkit train``: text or vectors in, a scored model out, whatever the task."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from attnkit.cli import options
from attnkit.cli._train import RunOptions, configuration_keys, run_training
from attnkit.engine.run_config import ModelName, Preset, TaskName


def command(
    src: Annotated[list[str] | None, Option(help="Source text; repeatable.", metavar="FILE")] = None,
    tgt: Annotated[list[str] | None, Option(help="Target text; once per --src.", metavar="FILE")] = None,
    output: options.RunOutput = Path("run"),
    weight: Annotated[
        list[float] | None, Option(help="Sampling weight per file pair (2: each pair twice per epoch).")
    ] = None,
    task: Annotated[
        TaskName | None,
        Option(metavar="TASK", help="Task: translation (default), autoencode, text-classification, word2vec."),
    ] = None,
    data: Annotated[
        list[str] | None, Option(help="Input file for tasks other than translation; repeatable.", metavar="FILE")
    ] = None,
    valid_data: Annotated[
        list[str] | None, Option(help="Validation file for tasks other than translation.", metavar="FILE")
    ] = None,
    valid_src: Annotated[list[str] | None, Option(help="Validation source; repeatable.", metavar="FILE")] = None,
    valid_tgt: Annotated[
        list[str] | None, Option(help="Validation target; once per --valid-src.", metavar="FILE")
    ] = None,
    config: options.ConfigFile = None,
    preset: Annotated[
        Literal["auto", Preset], Option(help="Preset of all other keys; auto chooses by corpus size.")
    ] = "auto",
    model: Annotated[ModelName | None, Option(help="Architecture.")] = None,
    vocab: Annotated[
        list[str] | None,
        Option(help="Existing vocabulary; give twice for separate source and target.", metavar="FILE"),
    ] = None,
    sets: options.Sets = None,
    max_steps: options.MaxSteps = None,
    max_epochs: options.MaxEpochs = None,
    max_minutes: options.MaxMinutes = None,
    average: Annotated[int | None, Option(min=0, help="Average the last N checkpoints at the end.")] = None,
    seed: options.Seed = None,
    device: options.TrainingDevice = None,
    precision: options.TrainingPrecision = None,
    threads: options.TrainingThreads = None,
    init_from: Annotated[
        Path | None,
        Option(help="Run to initialize from: a translator's weights and vocabulary, or BERT's encoder.", metavar="RUN"),
    ] = None,
    overwrite: options.Overwrite = False,
    tensorboard: options.TensorBoard = None,
    dry_run: options.DryRun = False,
    json: options.Json = False,
) -> None:
    """Train a translation model, or another one by --task; run it again to resume.

    \b
    Examples:
      attnkit train --src a.en --tgt a.de -o run
      attnkit train --src a.en --tgt a.de -o run --model rnn --max-minutes 40
      attnkit train --config examples/multi30k.yaml --src a.en --tgt a.de -o run --dry-run
      attnkit train --src a.en --tgt a.de -o run --init-from bert
      attnkit train --task autoencode --data lines.txt -o codes
      attnkit train --task text-classification --data reviews.tsv -o labels
    """
    keys = {
        "task": "task",
        "data": "data.files",
        "valid_data": "data.valid_files",
        "src": "data.src",
        "tgt": "data.tgt",
        "weight": "data.weights",
        "valid_src": "data.valid_src",
        "valid_tgt": "data.valid_tgt",
        "vocab": "vocabulary_files",
        "model": "model.kind",
        "average": "checkpoints.average",
    }
    run = RunOptions(output, config, preset, sets, init_from, overwrite, dry_run, json)
    run_training(configuration_keys(locals(), keys), run)
