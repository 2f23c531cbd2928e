"""``attnkit fill-mask``: what stands where [MASK] does."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from attnkit.tasks.language_modeling.fill_mask import FilledText


def command(
    run: Annotated[Path, typer.Argument(help="Run of pretrain-mlm.", metavar="RUN")],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Text with [MASK]; lines of standard input if none.", metavar="TEXT")
    ] = None,
    top: Annotated[int, typer.Option(min=1, max=100_000, help="Guesses for each [MASK].")] = 5,
    fill: Annotated[
        bool, typer.Option("--fill", help="Only the text, with the likeliest token in the place of each [MASK].")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a text.")] = False,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, averaged or step-N. [default: best]")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of one operation.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at bytes that are not UTF-8.")] = False,
) -> None:
    """Guess with BERT what stands where [MASK] does, from both sides; each guess with its probability.

    A [MASK] is one token. Of several each is guessed while the others are hidden. --fill and --json: N lines in,
    N lines out; lines of standard input that have none stay as they are.

    \b
    Examples:
      attnkit fill-mask run "The cat sat on the [MASK]."
      attnkit fill-mask run "The [MASK] sat on the [MASK]." --top 3 --json
      attnkit fill-mask run --fill < lines.txt
    """
    from attnkit.cli import console
    from attnkit.errors import UsageError
    from attnkit.io import atomic

    if fill and json:
        raise UsageError("JSON holds the filled text as well", where="--fill", help="leave out --fill or --json")
    from attnkit.tasks.language_modeling.fill_mask import FillMaskRequest, fill_stream

    request = FillMaskRequest(run, texts or None, top, device, threads, checkpoint, strict)
    with (
        console.prompting(not texts, "type a line with [MASK] in it; Ctrl-D ends") as ask,
        atomic.open_output(None) as out,
    ):
        for found in fill_stream(request, console.warn):
            for filled in found:
                text = dumps(filled.as_dictionary(), ensure_ascii=False) if json else filled.filled
                out.write((text if fill or json else _report(filled)) + "\n")
            out.flush()
            ask()


def _report(filled: FilledText) -> str:
    """Return the text and its guesses, of each mask a block."""
    from attnkit.cli import console

    lines = [console.printable(filled.text)]
    for number, guesses in enumerate(filled.masks, 1):
        if len(filled.masks) > 1:
            lines.append(f"  [MASK] {number}")
        rows = [(f"{100 * guess.probability:6.2f} %", guess.piece) for guess in guesses]
        lines.append(console.table(rows))
    return "\n".join(lines)
