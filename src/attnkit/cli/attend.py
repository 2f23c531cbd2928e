"""``attnkit attend``: attention weights in the terminal, as HTML, figures or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import CheckpointName, Device, Pdf, Png, SourceLanguage, Svg, TargetLanguage
from attnkit.errors import UsageError
from attnkit.models.attention.config import ALIGNMENT_NAMES, DistributionName
from attnkit.progress import console
from attnkit.protocols import Unit

if TYPE_CHECKING:
    from attnkit.analysis.attention_request import AttentionReport, MapSelection, Paths
    from attnkit.plotting.attention_maps import AttentionExample

MODES = {"example": "--example cat", "run": "attend RUN TEXT", "compare": "--compare"}  #: mode -> its invocation
RUN_OPTIONS: tuple[str, ...] = ("target", "html", "svg", "png", "pdf", "kind", "layer", "head")
RUN_OPTIONS += ("unit", "hide_special", "beam_size", "checkpoint", "device", "src_lang", "tgt_lang")
OPTIONS: dict[str, tuple[str, ...]] = dict.fromkeys(RUN_OPTIONS, ("run", "compare"))
OPTIONS["pair"] = ("run",)
OPTIONS |= dict.fromkeys(("alignment", "distribution", "seed"), ("example", "compare"))
"""Option -> modes that accept it."""
PICTURES = (".html", ".svg", ".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp", ".txt", ".json")
"""Endings that name a format; a file with another ending may hold any."""


def command(
    run: Annotated[Path | None, Argument(help="Run of a translator, BERT, GPT or classifier.", metavar="RUN")] = None,
    text: Annotated[list[str] | None, Argument(help="Source lines; - reads stdin.", metavar="TEXT")] = None,
    target: Annotated[list[str] | None, Option(help="Target text. [default: translate]", metavar="TEXT")] = None,
    pair: Annotated[
        list[str] | None, Option(help="Second text of a pair; a question's context.", metavar="TEXT")
    ] = None,
    html: Annotated[Path | None, Option(help="HTML page to write, with all attention weights.")] = None,
    svg: Svg = None,
    png: Png = None,
    pdf: Pdf = None,
    json: Annotated[bool, Option(help="One JSON object per line, with all weights.")] = False,
    kind: Annotated[
        str | None, Option(help="cross, encoder, decoder, self, causal, word or sentence. [default: first]")
    ] = None,
    layer: Annotated[str | None, Option(help="Layer: a number, mean, max or all. [default: the last]")] = None,
    head: Annotated[str | None, Option(help="Head: a number, mean, max or all. [default: mean]")] = None,
    unit: Annotated[
        Unit | None, Option(help="Rows and columns; character joins bytes, word sums columns and averages rows.")
    ] = None,
    hide_special: Annotated[bool, Option("--hide-special", help="Leave out <s>, </s>, [CLS] and [SEP].")] = False,
    beam_size: Annotated[int | None, Option(min=1, help="Beam size. [default: the run's]")] = None,
    compare: Annotated[bool, Option(help="Compare all alignment functions on this model's queries and keys.")] = False,
    example: Annotated[Literal["cat"] | None, Option(help="Compute the lecture notes' example step by step.")] = None,
    alignment: Annotated[
        list[str] | None,
        Option(help="Alignment function of --example (scaled_dot) or --compare; repeatable.", metavar="NAME"),
    ] = None,
    distribution: Annotated[DistributionName | None, Option(help="Distribution of --example and --compare.")] = None,
    seed: Annotated[int | None, Option(min=0, max=2**31, help="Seed of --example and --compare. [default: 1]")] = None,
    checkpoint: CheckpointName = None,
    device: Device = "auto",
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
) -> None:
    """Show attention weights in the terminal, or write HTML, SVG, PNG, PDF or JSON.

    BERT fills [MASK], GPT predicts the next token, fine-tuned models their label, tags or answer. Weights by word are
    sums over the tokens of a column and means over those of a row.

    \b
    Examples:
      attnkit attend run "A dog runs."
      attnkit attend run "A dog runs." --target "Ein Hund rennt." --layer all
      attnkit attend run "A dog runs." --html page.html --unit word
      attnkit attend bert "A dog [MASK]." --layer all --head 1 --hide-special
      attnkit attend reader "Who runs?" --pair "A dog runs."
      attnkit attend opinions "It rained. Nobody came." --kind sentence
      attnkit attend run "A dog runs." --compare --alignment dot --alignment deep
      attnkit attend --example cat --alignment additive
    """
    mode = "example" if example is not None else "compare" if compare else "run"
    unset: tuple[object, ...] = (None, [], "auto")
    given = [name for name, value in locals().items() if name in OPTIONS and value not in unset and value is not False]
    paths = (html, svg, png, pdf)
    outputs = [path for path in paths if path is not None]
    if mode == "example" and (run is not None or outputs or compare):
        raise UsageError("the example takes no run and writes no files", where="--example", help="leave out the others")
    if mode != "example" and (run is None or not text):
        help = 'attnkit attend RUN "a sentence", or attnkit attend --example cat'
        raise UsageError("no run or text given" if run is None else "no text given", help=help)
    check_outputs(run, text or [], {".html": html, ".svg": svg, ".png": png, ".pdf": pdf})
    for name in given:
        if mode not in OPTIONS[name]:
            flag = f"--{name.replace('_', '-')}"
            help = f"{flag} requires {' or '.join(MODES[owner] for owner in OPTIONS[name])}"
            raise UsageError(f"{flag} cannot be used with {MODES[mode]}", where=flag, help=help)
    if target and beam_size:
        raise UsageError("--target and --beam-size cannot be combined", where="--beam-size", help="leave one out")
    from attnkit.analysis.attention_request import AttentionQuery, check_alignments, parse_selection, source_lines

    check_alignments(alignment or ())
    names = [name for name in ALIGNMENT_NAMES if name in (alignment or ())]
    seed = 1 if seed is None else seed
    if run is None:
        from attnkit.analysis.explain import worked_example
        from attnkit.plotting.worked_example import render_example

        for name in names or ["scaled_dot"]:
            steps = worked_example(name, distribution or "softmax", seed)
            console.result(dumps(steps.to_dict(), ensure_ascii=False) if json else render_example(steps))
        return
    from attnkit.analysis.attention import extract_attention
    from attnkit.analysis.compare_alignments import FunctionChoice, compare_functions
    from attnkit.tasks.translation.directions import LanguagePair

    selection = replace(parse_selection(kind, layer, head or "mean"), unit=unit, special=not hide_special)
    lines = source_lines(text or [])
    languages = LanguagePair(src_lang, tgt_lang)
    query = AttentionQuery(run, lines, target or (), pair or (), beam_size, checkpoint, device, languages)
    if compare:
        answer = compare_functions(query, FunctionChoice(names, distribution, seed), selection.layer)
        selection = replace(selection, layer=None, every=True)
    else:
        answer = extract_attention(query)
    render(answer, selection, json, paths)


def check_outputs(run: Path | None, text: Sequence[str], named: Mapping[str, Path | None]) -> None:
    """Raise ``UsageError`` if an output would overwrite a file or has a wrong ending.

    ``named`` holds the output of each format, by its usual ending. Another output, the run and the input must stay.
    """
    from attnkit.text.files import STDIN
    from attnkit.text.lines import check_not_overwriting

    outputs = {ending: path for ending, path in named.items() if path is not None}
    if len({path.resolve() for path in outputs.values()}) < len(outputs):
        raise UsageError("two output files have the same name", help="give each a different name")
    for ending, path in outputs.items():
        if path.suffix.lower() in PICTURES and path.suffix.lower() != ending:
            what = f"{path} has the ending of another format than {ending[1:].upper()}"
            raise UsageError(what, where=f"--{ending[1:]}", help=f"name it {path.with_suffix(ending)}")
        if run is not None and run.resolve() in path.resolve().parents:
            raise UsageError(f"output file {path} is inside the run folder", help="write it elsewhere")
        check_not_overwriting(path, [STDIN] if "-" in text else [])


def render(answer: AttentionReport, selection: MapSelection, json: bool, paths: Paths) -> None:
    """Write the requested files; print JSON, or maps if no files are requested."""
    from attnkit.analysis.attention_request import by_unit, checked, gather, pick, write_files
    from attnkit.plotting.attention_maps import to_dict
    from attnkit.plotting.terminal import sentence_maps

    for warning in answer.warnings:
        console.warn(warning)
    sentences: Iterable[AttentionExample] = checked(answer.sentences, selection)
    if any(paths):
        sentences = held = gather(sentences)
        write_files(held, answer.facts, selection, paths, console.info)
    colour = console.supports_color()
    for sentence in sentences:
        if json:
            console.result(dumps({**answer.facts, **to_dict(by_unit(sentence, selection))}, ensure_ascii=False))
        elif not any(paths):
            width = console.width() if colour else 80
            console.result(f"{sentence_maps(sentence, pick(sentence, selection), colour=colour, width=width)}\n")
    for warning in answer.afterwards():
        console.warn(warning)
