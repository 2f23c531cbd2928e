"""``attnkit fill-mask``: prediction of masked tokens."""

from json import dumps
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli.options import CheckpointName, CpuPrecision, Device, Strict, Threads


def command(
    run: Annotated[Path, Argument(help="Masked language model: run of pretrain-mlm or import.", metavar="RUN")],
    texts: Annotated[list[str] | None, Argument(help="Text with [MASK]; default: stdin lines.", metavar="TEXT")] = None,
    top: Annotated[int, Option(min=1, max=100_000, help="Predictions per [MASK].")] = 5,
    fill: Annotated[
        bool, Option(help="Print only the text, with each [MASK] replaced by its most probable token.")
    ] = False,
    json: Annotated[bool, Option(help="One JSON object per text.")] = False,
    checkpoint: CheckpointName = None,
    device: Device = "auto",
    precision: CpuPrecision = "float32",
    threads: Threads = None,
    strict: Strict = False,
) -> None:
    """Predict masked tokens with BERT; print each prediction with its probability.

    Each [MASK] is one token. Several masks are predicted independently, all of them masked. With --fill or --json,
    there is one output line per input line; lines of standard input without [MASK] stay unchanged.

    \b
    Examples:
      attnkit fill-mask run "The cat sat on the [MASK]."
      attnkit fill-mask run "The [MASK] sat on the [MASK]." --top 3 --json
      attnkit fill-mask run --fill < lines.txt
    """
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.progress import console

    if fill and json:
        what = "--fill and --json cannot be combined: the JSON output contains the filled text"
        raise UsageError(what, where="--fill", help="leave out --fill or --json")
    from attnkit.engine.compiled_language_models import set_precision
    from attnkit.engine.loading import load_model
    from attnkit.runtime.devices import set_threads
    from attnkit.tasks.language_modeling.electra import masked_language_model
    from attnkit.tasks.language_modeling.fill_mask import FillMaskPipeline

    set_threads(threads)
    loaded = load_model(run, "mlm", device=device, checkpoint=checkpoint, warn=console.warn)
    opened = masked_language_model(loaded)
    set_precision(opened, precision, console.warn)
    filler = FillMaskPipeline(opened, top)
    with console.prompting(not texts, "type a line with [MASK]; Ctrl-D ends") as ask, atomic.open_output(None) as out:
        ask()
        for found in [filler.fill(texts)] if texts else filler.fill_stdin(strict, console.warn):
            for filled in found:
                if json:
                    lines = [dumps(filled.to_dict(), ensure_ascii=False)]
                else:
                    lines = [filled.filled if fill else console.printable(filled.text)]
                    for number, guesses in enumerate(() if fill else filled.masks, 1):
                        lines += [f"  [MASK] {number}"] if len(filled.masks) > 1 else []
                        lines.append(console.table([(f"{100 * one.probability:6.2f} %", one.piece) for one in guesses]))
                out.write("\n".join(lines) + "\n")
            out.flush()
            ask()
