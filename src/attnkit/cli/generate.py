"""``attnkit generate``: text generation from prompts."""

import sys
from json import dumps
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from attnkit.cli.options import (
    Adapter,
    CheckpointName,
    CpuPrecision,
    Device,
    Engine,
    RepetitionPenalty,
    Strict,
    Threads,
    TopP,
)


def command(
    run: Annotated[Path, Argument(help="Language model: run of pretrain-clm or import.", metavar="RUN")],
    prompt: Annotated[str | None, Argument(help="Prompt; default: lines of stdin.", metavar="PROMPT")] = None,
    max_new_tokens: Annotated[int, Option(min=1, max=1 << 20, help="Maximum number of tokens to generate.")] = 100,
    temperature: Annotated[
        float | None,
        Option(min=0, help="Sampling temperature: below 1 more conservative, above 1 more varied; 0: greedy."),
    ] = None,
    top_k: Annotated[int | None, Option(min=0, help="Sample among the k most probable tokens; 0: all.")] = None,
    top_p: TopP = None,
    repetition_penalty: RepetitionPenalty = None,
    n: Annotated[int, Option("--n", min=1, max=1024, help="Samples per prompt.")] = 1,
    seed: Annotated[int | None, Option(min=0, help="Seed of sampling; implies sampling. [default: 1]")] = None,
    window: Annotated[int | None, Option(min=2, help="Context window in tokens. [default: training length]")] = None,
    stream: Annotated[
        bool | None, Option("--stream/--no-stream", help="Print tokens as they are generated. [default: on a terminal]")
    ] = None,
    json: Annotated[bool, Option(help="One JSON object per prompt.")] = False,
    checkpoint: CheckpointName = None,
    adapter: Adapter = None,
    device: Device = "auto",
    precision: CpuPrecision = "float32",
    engine: Engine = "auto",
    threads: Threads = None,
    strict: Strict = False,
) -> None:
    """Generate text with GPT from prompts, one per line; --n sets samples per prompt.

    Decoding is greedy; --temperature, --top-k, --top-p, --n and --seed switch to sampling. A right-to-left model treats
    the prompt as the end of the text and generates the preceding text. When the text exceeds the context window,
    generation continues from the last half window.

    \b
    Examples:
      attnkit generate run "The cat sat"
      attnkit generate run "The cat sat" --temperature 0.8 --top-p 0.95 --n 3
      attnkit generate run --json < prompts.txt
      attnkit generate run "" --seed 7 --max-new-tokens 40
    """
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.progress import console

    if stream and json:
        what = "--stream and --json cannot be combined: JSON is printed when complete"
        raise UsageError(what, where="--stream", help="leave out --json or --stream")
    from attnkit.engine.loading import load_model
    from attnkit.runtime.devices import set_threads
    from attnkit.tasks.language_modeling.generate import Generator, one_line, search_config
    from attnkit.text.files import STDIN
    from attnkit.text.lines import read_line_batches

    search: dict[str, float | None] = {"max_length": max_new_tokens, "temperature": temperature}
    search |= {"top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty, "seed": seed}
    config = search_config(search, n)  # checked before the model is loaded
    set_threads(threads)
    opened = load_model(run, "clm", device=device, checkpoint=checkpoint, warn=console.warn, adapter=adapter)
    generator = Generator(opened, config, window, engine=engine, precision=precision, notify=console.warn)
    if stream and generator.backwards:
        what = "a right-to-left model cannot stream: it generates the beginning of the text last"
        raise UsageError(what, where="--stream", help="leave it out")
    live = sys.stdout is not None and sys.stdout.isatty() and not json and not generator.backwards
    stream = live if stream is None else stream
    alone, n_lines = prompt is not None and n == 1, 0  # a single text may span several lines
    with console.prompting(prompt is None, "type a prompt; Ctrl-D ends") as ask, atomic.open_output(None) as out:

        def show(text: str) -> None:
            text = text if alone else one_line(text)
            out.write(console.printable(text) if sys.stdout.isatty() else text)
            out.flush()

        ask()
        for prompts in [[prompt]] if prompt is not None else read_line_batches(STDIN, 256, strict, console.warn):
            for line, text in enumerate(prompts if stream else (), n_lines):
                for number in range(n):
                    generator.stream(text, show, line, number)
                    out.write("\n")
                    out.flush()
            answers = [] if stream else generator.generate(prompts, n, n_lines)
            for text, made in zip(prompts, answers, strict=False):
                if json:
                    plain = {"prompt": text, "texts": [each.to_dict() for each in made]}
                    out.write(dumps(plain, ensure_ascii=False) + "\n")
                else:
                    out.writelines((each.text if alone else one_line(each.text)) + "\n" for each in made)
            out.flush()
            n_lines += len(prompts)
            ask()
    for message in generator.warnings():
        console.warn(message)
