"""``attnkit embed``: the codes of an auto-encoder, or what it makes of them."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

import typer


def command(
    run: Annotated[Path, typer.Argument(help="Run of an auto-encoder.", metavar="RUN")],
    inputs: Annotated[
        list[Path] | None, typer.Argument(help="Text, or .npy and .csv; standard input if none.", metavar="FILE")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="A .npy, .csv or other file (tabs); or standard output.")
    ] = None,
    reconstruct: Annotated[
        bool, typer.Option("--reconstruct", help="What comes back of each row, in place of its code.")
    ] = False,
    summary: Annotated[bool, typer.Option("--summary", help="With --reconstruct: only how much came back.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a row, and one for the totals.")] = False,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, averaged or step-N. [default: best]")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of one operation.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at bytes that are not UTF-8.")] = False,
) -> None:
    """Print the code of each line or vector: N rows in, N rows out; totals go to stderr.

    \b
    Examples:
      attnkit embed run lines.txt -o codes.npy
      attnkit embed run vectors.npy --reconstruct --summary
      echo "a dog runs" | attnkit embed run
    """
    from attnkit import console, files
    from attnkit.errors import UsageError
    from attnkit.text.lines import STDIN, refuse_overwriting

    sources = inputs or [STDIN]
    binary = output is not None and output.suffix == ".npy"
    if summary and not reconstruct:
        raise UsageError("codes have no totals", where="--summary", help="add --reconstruct")
    if binary and (json or summary):
        flag, what = ("--json", "JSON") if json else ("--summary", "totals")
        raise UsageError(f"a .npy file holds no {what}", where=flag, help="give another name to -o")
    refuse_overwriting(output, sources)  # before torch is loaded
    from attnkit.tasks.embed import Request, Totals, embed_stream, render, write_codes

    totals = Totals()
    request = Request(run, sources, reconstruct, device, threads, checkpoint, strict)
    blocks = embed_stream(request, totals, console.warn)
    separator = "," if output is not None and output.suffix == ".csv" else "\t"
    with files.open_output(output) as stream:
        if binary:
            write_codes(stream.buffer, blocks)
        else:
            for block in blocks:
                stream.writelines(line + "\n" for line in (() if summary else render(block, separator, json)))
                stream.flush()
            if reconstruct and json:
                stream.write(dumps(totals.as_dictionary()) + "\n")
    if reconstruct:
        (console.result if summary and not json else console.note)(str(totals))
