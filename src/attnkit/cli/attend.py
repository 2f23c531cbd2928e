"""``attnkit attend``: where a model looks, in the terminal, as a page, as a picture, as numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from attnkit.cli._attend import OPTIONS, alignment_names, mode_of, refuse, refuse_foreign, render, walk
from attnkit.cli.options import CheckpointName, Device, Pdf, Png, Svg
from attnkit.models.attention.config import DistributionName


def command(
    run: Annotated[Path | None, Argument(help="Run of a translation model or a classifier.", metavar="RUN")] = None,
    text: Annotated[
        list[str] | None,
        Argument(help="Source text, one argument per line; - reads standard input.", metavar="TEXT"),
    ] = None,
    target: Annotated[
        list[str] | None, Option(help="Target text, once per line. [default: translate]", metavar="TEXT")
    ] = None,
    html: Annotated[Path | None, Option(help="Write a page with all attention weights.", metavar="FILE")] = None,
    svg: Svg = None,
    png: Png = None,
    pdf: Pdf = None,
    json: Annotated[bool, Option("--json", help="One JSON object per line, with all weights.")] = False,
    kind: Annotated[
        str | None,
        Option(help="Attention: cross, encoder or decoder; classifiers: word or sentence. [default: the first]"),
    ] = None,
    layer: Annotated[str | None, Option(help="Layer: a number, mean, max or all. [default: the last]")] = None,
    head: Annotated[str | None, Option(help="Head: a number, mean, max or all. [default: mean]")] = None,
    beam_size: Annotated[int | None, Option(min=1, help="Beam size. [default: the run's]")] = None,
    compare: Annotated[
        bool, Option("--compare", help="Compare all alignment functions on this model's states.")
    ] = False,
    example: Annotated[Literal["cat"] | None, Option(help="Compute the lecture notes' example step by step.")] = None,
    alignment: Annotated[
        list[str] | None,
        Option(help="Alignment function of --example (scaled_dot) or --compare; repeatable.", metavar="NAME"),
    ] = None,
    distribution: Annotated[
        DistributionName | None, Option(help="Distribution function of --example and --compare.")
    ] = None,
    seed: Annotated[
        int | None, Option(min=0, max=2**31, help="Random seed of --example and --compare. [default: 1]")
    ] = None,
    checkpoint: CheckpointName = None,
    device: Device = "auto",
) -> None:
    """Show attention weights: in the terminal, as a page, as a picture, as JSON.

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
