"""``attnkit embed``: vectors of lines from an auto-encoder, BERT or GPT."""

from json import dumps
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import CheckpointName, CpuPrecision, Device, EncoderLayer, Quiet, Strict, Threads


def command(
    run: Annotated[Path, Argument(help="Run of an auto-encoder, BERT or GPT.", metavar="RUN")],
    inputs: Annotated[list[Path] | None, Argument(help="Text, .npy or .csv; default: standard input.")] = None,
    output: Annotated[
        Path | None, Option("-o", "--output", help="Output: .npy, .safetensors, .csv, or tab-separated text.")
    ] = None,
    what: Annotated[
        Literal["mean", "cls", "static"] | None,
        Option(help="Pooling of BERT and GPT: mean of tokens, [CLS], or the static embedding table. [default: mean]"),
    ] = None,
    layer: EncoderLayer = None,
    reconstruct: Annotated[bool, Option(help="Output reconstructions instead of codes.")] = False,
    summary: Annotated[bool, Option(help="With --reconstruct: print only the totals.")] = False,
    json: Annotated[bool, Option(help="One JSON object per row, and one for the totals.")] = False,
    checkpoint: CheckpointName = None,
    device: Device = "auto",
    precision: CpuPrecision = "float32",
    threads: Threads = None,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Embed lines or vectors, one output row per input row; totals go to stderr.

    Auto-encoders output their codes. BERT and GPT give the mean of a line's hidden states without [CLS] and [SEP]
    (zeros for a blank line), or the hidden state of [CLS]; lines longer than the position limit are encoded in windows.
    The static embedding table needs no text: one row per token of the vocabulary.

    \b
    Examples:
      attnkit embed run lines.txt -o codes.npy
      attnkit embed run vectors.npy --reconstruct --summary
      attnkit embed bert lines.txt --what cls --layer 1 -o lines.safetensors
      attnkit embed bert --what static -o pieces.vec
      echo "a dog runs" | attnkit embed run
    """
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.progress import console
    from attnkit.text.files import STDIN
    from attnkit.text.lines import check_not_overwriting

    static = what == "static"
    sources = (inputs or []) if static else inputs or [STDIN]
    if summary and not reconstruct:
        raise UsageError("--summary requires --reconstruct", where="--summary", help="add --reconstruct")
    if static and inputs:
        fault = "--what static embeds the vocabulary, not lines"
        raise UsageError(fault, where="--what static", help="leave out FILE")
    check_not_overwriting(output, sources)  # before torch is loaded
    from attnkit.analysis.embed import BINARY, EmbedTotals, Request, embed_stream, render, write_binary, write_table

    ending = "" if output is None else output.suffix.lower()
    if ending in BINARY and (json or summary):
        flag, noun = ("--json", "JSON") if json else ("--summary", "totals")
        raise UsageError(f"a {ending} file cannot store {noun}", where=flag, help="choose another suffix for -o")
    if summary and output is not None and not json:
        raise UsageError("--summary with -o requires --json", where=f"-o {output}", help="add --json, or leave out -o")
    totals = EmbedTotals()
    request = Request(run, sources, reconstruct, device, precision, threads, checkpoint, strict, what, layer)
    blocks = embed_stream(request, totals, console.warn)
    if output is None or not static or json or not write_table(output, blocks):
        separator, unit = ("," if ending == ".csv" else "\t"), ("piece" if static else "text")
        with atomic.open_output(output) as stream:
            if output is not None and ending in BINARY:
                write_binary(output, stream.buffer, blocks)
                blocks = iter(())
            for block in blocks:
                rows = () if summary else render(block, separator, json, unit, named=static)
                stream.writelines(line + "\n" for line in rows)
                stream.flush()
            if reconstruct and json:
                stream.write(dumps(totals.to_dict()) + "\n")
    if reconstruct:
        (console.result if summary and not json else console.info)(str(totals))
