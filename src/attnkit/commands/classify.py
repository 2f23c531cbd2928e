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
        bool, typer.Option("--labeled", help="Lines are document, tab, label: report accuracy and F1.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: probabilities, weights of words and sentences.")
    ] = False,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, averaged or step-N. [default: best]")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of one operation.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at bytes that are not UTF-8.")] = False,
) -> None:
    """Print the label of each document: N lines in, N lines out.

    Sentences stand between |||, or end with . ! ? and white space.

    \b
    Examples:
      attnkit classify run documents.txt -o labels.txt
      attnkit classify run test.tsv --labeled
      echo "It rained. Nobody came." | attnkit classify run --json
    """
    from attnkit import console, files
    from attnkit.text.lines import STDIN, refuse_overwriting

    sources = inputs or [STDIN]
    refuse_overwriting(output, sources)  # before torch is loaded
    from attnkit.tasks.label import Request, Tally, as_json, label_stream

    tally = Tally()
    request = Request(run, sources, labeled, device, threads, checkpoint, strict)
    with files.open_output(output) as stream:
        for documents in label_stream(request, tally, console.warn):
            stream.writelines((found.to_json() if json else found.label) + "\n" for found in documents)
            stream.flush()
    if labeled and tally.expected:
        scores, n = tally.scores(), len(tally.expected)
        said = f"{n:,} documents, accuracy {scores.accuracy:.2f} %, macro F1 {scores.macro_f1:.2f} %"
        console.note(dumps(as_json(scores, n)) if json else said)
