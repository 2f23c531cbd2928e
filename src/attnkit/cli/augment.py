"""``attnkit augment``: training pairs from translations of both sides of a corpus."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli._synthetic import SampledPairOptions, read_options, run_job
from attnkit.cli.options import with_options
from attnkit.text.tags import BACK_TRANSLATED


@with_options("shared", SampledPairOptions)
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
    num_hypotheses: Annotated[int | None, Option(help="Translations per line and run.")] = None,
    src_lang: Annotated[
        str | None,
        Option(help="Language of SRC, if a --backward run has several or one is imported: en.", metavar="CODE"),
    ] = None,
    tgt_lang: Annotated[
        str | None,
        Option(help="Language of TGT, if a --forward run has several or one is imported: de.", metavar="CODE"),
    ] = None,
    *,
    shared: SampledPairOptions,
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
    config, search = read_options(shared, tag=tag, num_hypotheses=num_hypotheses)
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
        **shared.request,
    )
    run_job(partial(augment, request), [src], output, shared)
