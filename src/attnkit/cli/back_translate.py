"""``attnkit back-translate``: training pairs from monolingual target text."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli import options
from attnkit.cli._synthetic import SampledPairOptions, read_options, run_job
from attnkit.cli.options import with_options
from attnkit.text.tags import BACK_TRANSLATED


@with_options("shared", SampledPairOptions)
def command(
    run: Annotated[Path, Argument(help="Run from the target to the source language.", metavar="RUN")],
    mono: Annotated[Path, Argument(help="Text in the target language; plain or compressed.", metavar="MONO")],
    output: Annotated[Path, Option("-o", "--output", help="Folder to write.", metavar="FOLDER")],
    tag: Annotated[
        str, Option(help="Symbol before each source; '' for none.", metavar="TEXT", show_default=True)
    ] = BACK_TRANSLATED,
    num_hypotheses: Annotated[int | None, Option(help="Translations per line, each the source of a pair.")] = None,
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
    mono_lang: Annotated[
        str | None, Option(help="Language of MONO, if --forward has several or RUN has codes.", metavar="CODE")
    ] = None,
    checkpoint: options.CheckpointName = None,
    adapter: options.Adapter = None,
    *,
    shared: SampledPairOptions,
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
    filters = {"min_forward_log_prob": min_forward_log_prob, "min_round_trip": min_round_trip}
    config, search = read_options(shared, tag=tag, num_hypotheses=num_hypotheses, **filters)
    from attnkit.tasks.translation.directions import BACK_OPTIONS
    from attnkit.tasks.translation.synthetic_pairs import SyntheticRequest, make_pairs

    request = SyntheticRequest(
        run=run,
        text=mono,
        output=output,
        config=config,
        search=search,
        is_back=True,
        forward=forward,
        checkpoint=checkpoint,
        adapter=adapter,
        tgt_lang=tgt_lang,
        text_lang=mono_lang,
        lang_options=BACK_OPTIONS,
        **shared.request,
    )
    run_job(partial(make_pairs, request), [mono], output, shared)
