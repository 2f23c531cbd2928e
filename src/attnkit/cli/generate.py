"""``attnkit generate``: texts that go on from prompts."""

from __future__ import annotations

import sys
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

if TYPE_CHECKING:
    from attnkit.tasks.language_modeling.generate import Answer, GenerateRequest, Generator


def command(
    run: Annotated[Path, typer.Argument(help="Run of pretrain-clm.", metavar="RUN")],
    prompt: Annotated[
        str | None,
        typer.Argument(help='How the text begins, "" for anyhow; lines of standard input if none.', metavar="PROMPT"),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, max=1 << 20, help="Most tokens to add.")] = 100,
    temperature: Annotated[
        float | None, typer.Option(min=0, help="Draw at random: below 1 bolder, above 1 more varied; 0: do not draw.")
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="Draw among the k likeliest tokens; 0: all.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw among the tokens that hold this probability.")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: tokens of prompt and text become less likely.")
    ] = None,
    n: Annotated[int, typer.Option("--n", min=1, max=1024, help="Texts of each prompt, drawn at random.")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="Draw at random; another one draws others. [1]")] = None,
    window: Annotated[
        int | None, typer.Option(min=2, help="Most tokens the model sees at once. [default: what it learned from]")
    ] = None,
    stream: Annotated[
        bool | None, typer.Option("--stream/--no-stream", help="Show text as it comes. [default: on a terminal]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a prompt.")] = False,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, averaged or step-N. [default: best]")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of one operation.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at bytes that are not UTF-8.")] = False,
) -> None:
    """Write on from a prompt with GPT: N lines in, N lines out, or --n times as many.

    Each token is the likeliest one, unless --temperature, --top-k, --top-p, --n or --seed ask for chance. Of a run
    with direction right-to-left the prompt is the end, and what comes before it is made. A text that outgrows the
    window goes on: the newer half of the window is read anew.

    \b
    Examples:
      attnkit generate run "The cat sat"
      attnkit generate run "The cat sat" --temperature 0.8 --top-p 0.95 --n 3
      attnkit generate run --json < prompts.txt
      attnkit generate run "" --seed 7 --max-new-tokens 40
    """
    from attnkit.cli import console
    from attnkit.errors import UsageError

    if stream and json:
        raise UsageError("JSON is shown when it is complete", where="--stream", help="leave out --json or --stream")
    from attnkit.tasks.language_modeling.generate import GenerateRequest, open_generator

    search = {
        "max_length": max_new_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "repetition_penalty": repetition_penalty,
        "seed": seed,
    }
    request = GenerateRequest(run, prompt, n, search, window, device, threads, checkpoint, strict)
    generator = open_generator(request, console.warn)
    if stream and generator.backwards:
        what = "this model writes from right to left: the beginning of its text comes last"
        raise UsageError(what, where="--stream", help="leave it out")
    live = sys.stdout is not None and sys.stdout.isatty() and not json and not generator.backwards
    _answer(generator, request, live if stream is None else stream, json)
    for message in generator.complaints():
        console.warn(message)


def _answer(generator: Generator, request: GenerateRequest, stream: bool, json: bool) -> None:
    from attnkit.cli import console
    from attnkit.io import atomic
    from attnkit.tasks.language_modeling.generate import prompts_of

    n_lines = 0
    with (
        console.prompting(request.prompt is None, "type the beginning of a text; Ctrl-D ends") as ask,
        atomic.open_output(None) as out,
    ):
        ask()
        for prompts in prompts_of(request, console.warn):
            if stream:
                _stream(generator, prompts, n_lines, request, out)
            else:
                for answer in generator.generate(prompts, request.n, n_lines):
                    out.writelines(line + "\n" for line in _lines(answer, json, request))
            out.flush()
            n_lines += len(prompts)
            ask()


def _lines(answer: Answer, json: bool, request: GenerateRequest) -> list[str]:
    from attnkit.tasks.language_modeling.generate import one_line

    if json:
        return [dumps(answer.as_dictionary(), ensure_ascii=False)]
    return [found.text if _is_alone(request) else one_line(found.text) for found in answer.texts]


def _is_alone(request: GenerateRequest) -> bool:
    """Return whether there is one text, which may have lines of its own."""
    return request.prompt is not None and request.n == 1


def _stream(generator: Generator, prompts: list[str], first: int, request: GenerateRequest, out: TextIO) -> None:
    from attnkit.cli import console
    from attnkit.tasks.language_modeling.generate import one_line

    def show(text: str) -> None:
        text = text if _is_alone(request) else one_line(text)
        out.write(console.printable(text) if sys.stdout.isatty() else text)
        out.flush()

    for line, prompt in enumerate(prompts, first):
        for number in range(request.n):
            generator.stream(prompt, show, line, number)
            out.write("\n")
            out.flush()
