"""``attnkit classify``: documents in, labels out."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

import typer


def command(
    run: Annotated[Path, typer.Argument(help="Run of a document classifier.", metavar="RUN")],
    inputs: Annotated[
        list[Path] | None, typer.Argument(help="Documents, one a line; standard input if none.", metavar="FILE")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write; standard output if not given.")
    ] = None,
    labeled: Annotated[
        bool, typer.Option("--labeled", help="Lines are document, tab, label: tell accuracy and F1.")
    ] = False,
    summary: Annotated[bool, typer.Option("--summary", help="With --labeled: only these totals.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line, with all weights, and one for totals.")
    ] = False,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, averaged or step-N. [default: best]")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of one operation.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at bytes that are not UTF-8.")] = False,
) -> None:
    """Print the label of each document: N lines in, N lines out; totals go to stderr.

    Sentences stand between |||, or end with . ! ? and white space.

    \b
    Examples:
      attnkit classify run documents.txt -o labels.txt
      attnkit classify run test.tsv --labeled --summary
      echo "It rained. Nobody came." | attnkit classify run --json
    """
    from attnkit.cli import console
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.text.lines import STDIN, check_not_overwriting

    if summary and not labeled:
        raise UsageError("without labels there is nothing to sum up", where="--summary", help="add --labeled")
    sources = inputs or [STDIN]
    check_not_overwriting(output, sources)  # before torch is loaded
    from attnkit.tasks.text_classification.predict import ClassifyRequest, LabelCounts, classify_stream

    tally = LabelCounts()
    request = ClassifyRequest(run, sources, labeled, device, threads, checkpoint, strict)
    with atomic.open_output(output) as stream:
        for documents in classify_stream(request, tally, console.warn):
            kept = () if summary else documents
            stream.writelines((found.to_json() if json else found.label) + "\n" for found in kept)
            stream.flush()
        if labeled and json:
            stream.write(dumps(tally.as_dictionary()) + "\n")
    if labeled:
        (console.result if summary and not json else console.info)(str(tally))
