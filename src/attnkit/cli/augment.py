"""``attnkit augment``: training pairs from translations of both sides of a corpus."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli import options
from attnkit.text.tags import BACK_TRANSLATED


def command(
    src: Annotated[Path, Argument(help="Source text; plain or compressed.", metavar="SRC")],
    tgt: Annotated[Path, Argument(help="Target text, aligned line by line.", metavar="TGT")],
    output: Annotated[Path, Option("-o", "--output", help="Folder to write.", metavar="FOLDER")],
    forward: Annotated[
        list[Path] | None,
        Option(help="Run from the source to the target language; may be given several times.", metavar="RUN"),
    ] = None,
    backward: Annotated[
        list[Path] | None, Option(help="Run from the target to the source language, likewise.", metavar="RUN")
    ] = None,
    tag: Annotated[
        str,
        Option(help="Symbol before each source that a model wrote; '' for none.", metavar="TEXT", show_default=True),
    ] = BACK_TRANSLATED,
    forward_tag: Annotated[
        str, Option(help="Symbol before each source whose target a model wrote.", metavar="TEXT")
    ] = "",
    beam_size: options.BeamSize = None,
    sampling: options.Sampling = False,
    temperature: options.Temperature = None,
    top_k: options.TopK = None,
    top_p: options.TopP = None,
    seed: options.SamplingSeed = None,
    num_hypotheses: Annotated[int | None, Option(help="Translations per line and run.")] = None,
    length_penalty: options.LengthPenalty = None,
    max_length: options.MaxLength = None,
    keep_flagged: options.KeepFlagged = False,
    min_log_prob: options.MinLogProb = None,
    src_lang: Annotated[
        str | None, Option(help="Language of SRC, if a --backward run has several: en.", metavar="CODE")
    ] = None,
    tgt_lang: Annotated[
        str | None, Option(help="Language of TGT, if a --forward run has several: de.", metavar="CODE")
    ] = None,
    split: options.Split = "auto",
    device: options.Device = "auto",
    precision: options.Precision = "float32",
    engine: options.Engine = "auto",
    threads: options.Threads = None,
    overwrite: Annotated[bool, Option(help="Replace an earlier result in the folder.")] = False,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Make more training pairs of a corpus: translate both of its sides.

    Runs of both directions translate the text that they were trained on, too; each translation makes a pair with the
    true other side. FOLDER gets pairs.src and pairs.tgt, dropped.tsv (line, reason, source, target) and report.json;
    the pairs of SRC and TGT are not among them. Rerun the command to resume.

    \b
    Examples:
      attnkit augment a.en a.de -o more --forward en-de --backward de-en \\
        --sampling --num-hypotheses 3
      attnkit augment a.en a.de -o more --forward both --backward both \\
        --src-lang en --tgt-lang de
      attnkit train --src a.en --src more/pairs.src --tgt a.de \\
        --tgt more/pairs.tgt -o better
    """
    from attnkit.cli._synthetic import read_options, run_job

    config, search = read_options(locals())
    from attnkit.tasks.translation.augment import AugmentRequest, augment

    request = AugmentRequest(
        src=src,
        tgt=tgt,
        output=output,
        forward=forward or [],
        backward=backward or [],
        config=config,
        forward_tag=forward_tag,
        search=search,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        device=device,
        precision=precision,
        engine=engine,
        threads=threads,
        split=split,
        overwrite=overwrite,
    )
    run_job(partial(augment, request), [src], output, json, overwrite)
