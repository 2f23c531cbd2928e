"""``attnkit distill``: a teacher's translations as training text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli import options
from attnkit.cli._synthetic import PairOptions, read_options, run_job
from attnkit.cli.options import with_options


@with_options("shared", PairOptions)
def command(
    run: Annotated[Path, Argument(help="Run folder of the teacher.", metavar="RUN")],
    src: Annotated[Path, Argument(help="Source text; plain or compressed.", metavar="SRC")],
    output: Annotated[Path, Option("-o", "--output", help="Folder to write.", metavar="FOLDER")],
    tgt: Annotated[
        Path | None,
        Argument(help="Target text: of the hypotheses of a line, keep the nearest to its target.", metavar="TGT"),
    ] = None,
    num_hypotheses: Annotated[
        int | None, Option(help="Translations per line; with TGT, those to choose from. [default: 1, or the beam size]")
    ] = None,
    src_lang: options.SourceLanguage = None,
    tgt_lang: options.TargetLanguage = None,
    checkpoint: options.CheckpointName = None,
    adapter: options.Adapter = None,
    *,
    shared: PairOptions,
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
    config, search = read_options(shared, num_hypotheses=num_hypotheses)
    from attnkit.tasks.translation.synthetic_pairs import SyntheticRequest, make_pairs

    request = SyntheticRequest(
        run=run,
        text=src,
        output=output,
        config=config,
        search=search,
        references=tgt,
        checkpoint=checkpoint,
        adapter=adapter,
        tgt_lang=tgt_lang,
        text_lang=src_lang,
        **shared.request,
    )
    run_job(partial(make_pairs, request), [src], output, shared)
