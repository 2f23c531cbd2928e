"""``attnkit distill``: a teacher's translations as training text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli import options


def command(
    run: Annotated[Path, Argument(help="Run folder of the teacher.", metavar="RUN")],
    src: Annotated[Path, Argument(help="Source text; plain or compressed.", metavar="SRC")],
    output: Annotated[Path, Option("-o", "--output", help="Folder to write.", metavar="FOLDER")],
    tgt: Annotated[
        Path | None,
        Argument(help="Target text: of the hypotheses of a line, keep the nearest to its target.", metavar="TGT"),
    ] = None,
    beam_size: options.BeamSize = None,
    num_hypotheses: Annotated[
        int | None, Option(help="Translations per line; with TGT, those to choose from. [default: 1, or the beam size]")
    ] = None,
    length_penalty: options.LengthPenalty = None,
    max_length: options.MaxLength = None,
    keep_flagged: options.KeepFlagged = False,
    min_log_prob: options.MinLogProb = None,
    tgt_lang: options.TargetLanguage = None,
    split: options.Split = "auto",
    checkpoint: options.CheckpointName = None,
    adapter: options.Adapter = None,
    device: options.Device = "auto",
    precision: options.Precision = "float32",
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    overwrite: Annotated[bool, Option(help="Replace an earlier result in the folder.")] = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Translate training text by a teacher, to train a smaller student on it.

    FOLDER gets pairs.src and pairs.tgt, dropped.tsv (line, reason, source, target) and report.json. Rerun the command
    to resume.

    \b
    Examples:
      attnkit distill run a.en -o distilled
      attnkit distill run a.en a.de -o distilled --beam-size 8
      attnkit train --src distilled/pairs.src --tgt distilled/pairs.tgt \\
        -o student --set model.encoder_layers=2 --set model.decoder_layers=1
    """
    from attnkit.cli._synthetic import read_options, run_job

    config, search = read_options(locals())
    from attnkit.tasks.translation.synthetic_pairs import SyntheticRequest, make_pairs

    request = SyntheticRequest(
        run=run,
        text=src,
        output=output,
        config=config,
        search=search,
        references=tgt,
        device=device,
        precision=precision,
        engine=engine,
        threads=threads,
        checkpoint=checkpoint,
        adapter=adapter,
        tgt_lang=tgt_lang,
        split=split,
        overwrite=overwrite,
    )
    run_job(partial(make_pairs, request), [src], output, json, overwrite)
