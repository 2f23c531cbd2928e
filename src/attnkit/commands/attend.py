"""``attnkit attend``: where a model looks, in the terminal, as a page, as a picture, as numbers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from attnkit import console
from attnkit.errors import UsageError
from attnkit.models.attention.config import ALIGNMENT_NAMES, AlignmentName, DistributionName

if TYPE_CHECKING:
    from attnkit.tasks.asked import Answer, Shown
    from attnkit.tasks.picture import Paths
    from attnkit.views.maps import Sentence


def command(
    run: Annotated[Path | None, typer.Argument(help="Run folder.", metavar="RUN")] = None,
    text: Annotated[
        list[str] | None, typer.Argument(help="Source text, a line each; - reads lines.", metavar="TEXT")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Its translation, once a line; else the model's own.", metavar="TEXT")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with every weight.", metavar="FILE")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write a picture of one line.", metavar="FILE")] = None,
    png: Annotated[Path | None, typer.Option(help="The same in pixels.", metavar="FILE")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with every weight.")] = False,
    kind: Annotated[str | None, typer.Option(help="cross, encoder or decoder. [default: cross]")] = None,
    layer: Annotated[str | None, typer.Option(help="A number, mean, max or all. [default: the last]")] = None,
    head: Annotated[str, typer.Option(help="A number, mean, max or all.")] = "mean",
    beam_size: Annotated[int | None, typer.Option(min=1, help="Of translating. [default: the run's]")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="All alignment functions on this model's states.")] = False,
    example: Annotated[Literal["cat"] | None, typer.Option(help="Walk through the lecture notes' example.")] = None,
    alignment: Annotated[
        list[str] | None, typer.Option(help="Of --example (scaled_dot), or a choice for --compare.", metavar="NAME")
    ] = None,
    distribution: Annotated[DistributionName | None, typer.Option(help="Of --example and --compare.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**31, help="Of parameters that are drawn.")] = 1,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, averaged or step-N.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
) -> None:
    """Show which words a model looks at: in the terminal, as a page, as a picture, as JSON.

    \b
    Examples:
      attnkit attend run "A dog runs."
      attnkit attend run "A dog runs." --target "Ein Hund rennt." --layer all
      attnkit attend run "A dog runs." --html page.html
      attnkit attend run "A dog runs." --compare --alignment dot --alignment deep
      attnkit attend --example cat --alignment additive
    """
    outputs = [path for path in (html, svg, png) if path is not None]
    refuse(run, text or [], outputs, example, compare, bool(alignment or distribution))
    names = alignment_names(alignment or [])
    if run is None:
        walk(names or ["scaled_dot"], distribution or "softmax", seed, json)
        return
    from attnkit.tasks.asked import Question, source_lines, the_shown
    from attnkit.tasks.attend import look
    from attnkit.tasks.compare import Functions, compare_functions

    shown = the_shown(kind, layer, head)
    question = Question(run, source_lines(text or []), target or (), beam_size, checkpoint, device)
    functions = Functions(names, distribution, seed)
    answer = compare_functions(question, functions, shown.layer) if compare else look(question)
    shown = replace(shown, layer=None, every=True) if compare else shown
    render(answer, shown, json, (html, svg, png))


def render(answer: Answer, shown: Shown, json: bool, paths: Paths) -> None:
    """Write the files that are asked for, and print what there is to print."""
    from attnkit.tasks.asked import gather
    from attnkit.tasks.picture import write_files

    for warning in answer.warnings:
        console.warn(warning)
    written = any(paths)
    sentences: Iterable[Sentence] = answer.sentences
    if written:
        sentences = held = gather(answer.sentences)
        write_files(held, answer.facts, shown, paths, console.note)
    for sentence in sentences:
        show(sentence, answer.facts, shown, json, written)


def refuse(
    run: Path | None, text: Sequence[str], outputs: Sequence[Path], example: str | None, compare: bool, functions: bool
) -> None:
    """Say what cannot be meant before torch is loaded."""
    from attnkit.text.lines import STDIN, refuse_overwriting

    if example is not None and (run is not None or outputs or compare):
        raise UsageError("the example needs no run and makes no files", where="--example", help="leave out the others")
    if functions and example is None and not compare:
        raise UsageError("functions belong to --example cat or to --compare", help="add one of them")
    if example is None and (run is None or not text):
        raise UsageError(
            "there is nothing to look at", help='attnkit attend RUN "a sentence", or attnkit attend --example cat'
        )
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise UsageError("two outputs have one name", help="give each a name of its own")
    for path in outputs:
        if run is not None and run.resolve() in path.resolve().parents:
            raise UsageError(f"{path} lies in the run folder", help="write it elsewhere")
        refuse_overwriting(path, [STDIN] if "-" in text else [])


def alignment_names(given: Sequence[str]) -> list[AlignmentName]:
    """Return names of alignment functions. Raises ``UsageError`` for one that there is not."""
    names = [name for name in ALIGNMENT_NAMES if name in given]
    for name in given:
        if name not in ALIGNMENT_NAMES:
            close = difflib.get_close_matches(name, ALIGNMENT_NAMES, n=1)
            help = f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(ALIGNMENT_NAMES)}"
            raise UsageError(f"there is no alignment function '{name[:40]}'", where="--alignment", help=help)
    return names


def show(sentence: Sentence, facts: Mapping[str, str], shown: Shown, json: bool, written: bool) -> None:
    """Print a sentence: every weight as JSON, or the maps that were chosen, unless a file holds them."""
    from attnkit.tasks.asked import pick
    from attnkit.views.maps import as_dictionary
    from attnkit.views.terminal import sentence_maps

    if json:
        console.result(dumps({**facts, **as_dictionary(sentence)}, ensure_ascii=False))
    elif not written:
        width = console.width() if console.has_colour() else 80
        drawn = sentence_maps(sentence, pick(sentence, shown), colour=console.has_colour(), width=width)
        console.result(f"{drawn}\n")


def walk(alignments: Sequence[AlignmentName], distribution: DistributionName, seed: int, json: bool) -> None:
    """Print the notes' example, step by step, for each alignment function."""
    from attnkit.tasks.example import cat_example
    from attnkit.views.walk import walk_text

    for name in alignments:
        found = cat_example(name, distribution, seed)
        console.result(dumps(found.as_dictionary(), ensure_ascii=False) if json else walk_text(found))
