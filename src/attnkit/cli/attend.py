"""``attnkit attend``: where a model looks, in the terminal, as a page, as a picture, as numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from attnkit.cli._attend import OPTIONS, alignment_names, mode_of, refuse, refuse_foreign, render, walk
from attnkit.models.attention.config import DistributionName


def command(
    run: Annotated[
        Path | None, typer.Argument(help="Run of a translation model or a classifier.", metavar="RUN")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Argument(help="Source text, a line each; - reads lines.", metavar="TEXT")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="Its translation, once a line; else the model's own.", metavar="TEXT")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write a page with every weight.", metavar="FILE")] = None,
    svg: Annotated[Path | None, typer.Option(help="Picture of one line (needs attnkit[plot]).", metavar="FILE")] = None,
    png: Annotated[Path | None, typer.Option(help="The same picture as PNG.", metavar="FILE")] = None,
    pdf: Annotated[Path | None, typer.Option(help="The same picture as PDF.", metavar="FILE")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with every weight.")] = False,
    kind: Annotated[
        str | None, typer.Option(help="cross, encoder, decoder; a classifier's: word, sentence. [default: the first]")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="A number, mean, max or all. [default: the last]")] = None,
    head: Annotated[str | None, typer.Option(help="A number, mean, max or all. [default: mean]")] = None,
    beam_size: Annotated[int | None, typer.Option(min=1, help="Of translating. [default: the run's]")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="All alignment functions on this model's states.")] = False,
    example: Annotated[Literal["cat"] | None, typer.Option(help="Walk through the lecture notes' example.")] = None,
    alignment: Annotated[
        list[str] | None, typer.Option(help="Of --example (scaled_dot), or a choice for --compare.", metavar="NAME")
    ] = None,
    distribution: Annotated[DistributionName | None, typer.Option(help="Of --example and --compare.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31, help="Of parameters that are drawn [1].")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, averaged or step-N.")] = None,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
) -> None:
    """Show which words a model looks at: in the terminal, as a page, as a picture, as JSON.

    \b
    Examples:
      attnkit attend run "A dog runs."
      attnkit attend run "A dog runs." --target "Ein Hund rennt." --layer all
      attnkit attend run "A dog runs." --html page.html
      attnkit attend opinions "It rained. Nobody came." --kind sentence
      attnkit attend run "A dog runs." --compare --alignment dot --alignment deep
      attnkit attend --example cat --alignment additive
    """
    outputs = [path for path in (html, svg, png, pdf) if path is not None]
    given = [
        target,
        html,
        svg,
        png,
        pdf,
        kind,
        layer,
        head,
        beam_size,
        alignment,
        distribution,
        seed,
        checkpoint,
        device,
    ]
    refuse(run, text or [], outputs, example, compare)
    refuse_foreign(mode_of(example, compare), dict(zip(OPTIONS, given, strict=True)))
    names = alignment_names(alignment or [])
    if run is None:
        walk(names or ["scaled_dot"], distribution or "softmax", 1 if seed is None else seed, json)
        return
    from attnkit.analysis.attention import extract_attention
    from attnkit.analysis.attention_request import AttentionQuery, parse_selection, source_lines
    from attnkit.analysis.compare_alignments import FunctionChoice, compare_functions

    shown = parse_selection(kind, layer, head or "mean")
    question = AttentionQuery(run, source_lines(text or []), target or (), beam_size, checkpoint, device)
    functions = FunctionChoice(names, distribution, 1 if seed is None else seed)
    answer = compare_functions(question, functions, shown.layer) if compare else extract_attention(question)
    shown = replace(shown, layer=None, every=True) if compare else shown
    render(answer, shown, json, (html, svg, png, pdf))
