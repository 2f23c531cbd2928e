"""``attnkit back-translate``: training pairs from monolingual target text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli import options
from attnkit.text.tags import BACK_TRANSLATED


def command(
    run: Annotated[Path, Argument(help="Run from the target to the source language.", metavar="RUN")],
    mono: Annotated[Path, Argument(help="Text in the target language; plain or compressed.", metavar="MONO")],
    output: Annotated[Path, Option("-o", "--output", help="Folder to write.", metavar="FOLDER")],
    tag: Annotated[
        str, Option(help="Symbol before each source; '' for none.", metavar="TEXT", show_default=True)
    ] = BACK_TRANSLATED,
    beam_size: options.BeamSize = None,
    sampling: options.Sampling = False,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.SamplingSeed = None,
    num_hypotheses: Annotated[int | None, Option(help="Translations per line, each the source of a pair.")] = None,
    length_penalty: options.LengthPenalty = None,
    max_length: options.MaxLength = None,
    keep_flagged: options.KeepFlagged = False,
    min_log_prob: options.MinLogProb = None,
    forward: Annotated[
        Path | None, Option(help="Run from the source to the target language, for the filters below.", metavar="RUN")
    ] = None,
    min_forward_log_prob: Annotated[
        float | None, Option(help="Minimum log-probability per token of the line given its translation, by --forward.")
    ] = None,
    min_round_trip: Annotated[
        float | None, Option(help="Minimum chrF (0-100) of the line and its translation translated by --forward.")
    ] = None,
    tgt_lang: Annotated[
        str | None, Option(help="Language of the translations, if RUN has several: en.", metavar="CODE")
    ] = None,
    mono_lang: Annotated[str | None, Option(help="Language of MONO, if --forward has several.", metavar="CODE")] = None,
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
    """Make training pairs from text in the target language alone.

    A run of the other direction translates the text; its translations are the sources of the pairs. FOLDER gets
    pairs.src and pairs.tgt, dropped.tsv (line, reason, source, target) and report.json. Rerun the command to resume.

    \b
    Examples:
      attnkit back-translate de-en mono.de -o synthetic
      attnkit back-translate de-en mono.de -o synthetic --sampling --top-k 10
      attnkit back-translate de-en mono.de -o synthetic --min-log-prob -1.5
      attnkit back-translate de-en mono.de -o synthetic --forward run \\
        --min-round-trip 40 --min-forward-log-prob -3
      attnkit train --src a.en --src synthetic/pairs.src --tgt a.de \\
        --tgt synthetic/pairs.tgt --weight 5 --weight 1 -o better
    """
    from attnkit.cli._synthetic import read_options, run_job

    config, search = read_options(locals())
    from attnkit.tasks.translation.synthetic_pairs import SyntheticRequest, make_pairs

    request = SyntheticRequest(
        run=run,
        text=mono,
        output=output,
        config=config,
        search=search,
        is_back=True,
        forward=forward,
        device=device,
        precision=precision,
        engine=engine,
        threads=threads,
        checkpoint=checkpoint,
        adapter=adapter,
        tgt_lang=tgt_lang,
        text_lang=mono_lang,
        split=split,
        overwrite=overwrite,
    )
    run_job(partial(make_pairs, request), [mono], output, json, overwrite)
