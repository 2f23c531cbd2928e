"""``attnkit translate``: text through one run or several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several vote as an ensemble.", metavar="RUN...")],
    input: Annotated[
        Path | None, typer.Option("-i", "--input", help="Text to read; standard input if not given.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write; standard output if not given.")
    ] = None,
    beam_size: Annotated[int | None, typer.Option(help="Beams a sentence; 1 is greedy. [default: the run's]")] = None,
    sampling: Annotated[
        bool, typer.Option("--sampling", help="Draw from the distribution instead of searching.")
    ] = False,
    temperature: Annotated[float | None, typer.Option(help="Of sampling: below 1 sharper, above 1 flatter.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample among the tokens that hold this probability.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of sampling.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="Score = log-probability / length**this.")] = None,
    coverage_penalty: Annotated[float | None, typer.Option(help="Punish source words that were not looked at.")] = None,
    repetition_penalty: Annotated[
        float | None, typer.Option(help="Above 1: tokens already used become less likely.")
    ] = None,
    no_repeat_ngram_size: Annotated[int | None, typer.Option(help="No n-gram of this size twice.")] = None,
    min_length: Annotated[int | None, typer.Option(help="Fewest tokens of a translation.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Most tokens of a translation.")] = None,
    num_hypotheses: Annotated[int | None, typer.Option(help="Translations a line, on consecutive lines.")] = None,
    target_prefix: Annotated[Path | None, typer.Option(help="File of target beginnings, one a line.")] = None,
    shortlist: Annotated[
        Path | None,
        typer.Option(help="Choose among the source's likely words only, by a lexicon that align --run made."),
    ] = None,
    replace_unknowns: Annotated[
        bool,
        typer.Option(
            "--replace-unknowns",
            help="Put the source word most looked at for each <unk>; the run needs vocabulary.kind=word.",
        ),
    ] = False,
    dictionary: Annotated[
        Path | None, typer.Option(help="With --replace-unknowns: its translation, by a lexicon that align made.")
    ] = None,
    return_scores: Annotated[bool, typer.Option("--return-scores", help="Put 'score<TAB>' before each line.")] = False,
    return_attention: Annotated[
        bool, typer.Option("--return-attention", help="Attention weights, with --json.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="What is translated together. [default: 64 sentences or 4096 tokens]")
    ] = None,
    batch_type: Annotated[Literal["sentences", "tokens"], typer.Option(help="What --batch-size counts.")] = "sentences",
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes of one thread each.")] = 1,
    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")] = "auto",
    precision: Annotated[
        Literal["float32", "bfloat16"], typer.Option(help="bfloat16 is faster; then text may depend on the batch.")
    ] = "float32",
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of one operation.")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="best, last, averaged or step-N. [default: best]")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at bytes that are not UTF-8.")] = False,
) -> None:
    """Translate text, line by line: N lines in, N lines out.

    \b
    Examples:
      echo "A dog runs." | attnkit translate run
      attnkit translate run -i test.en -o test.de --beam-size 5
      attnkit translate run1 run2 --num-hypotheses 3 --json < test.en
      attnkit translate run -i test.en --shortlist tokens.tsv
      attnkit translate word-run --replace-unknowns --dictionary words.tsv
    """
    from attnkit.cli import console
    from attnkit.io import atomic
    from attnkit.text.lines import STDIN, check_not_overwriting

    source = input or STDIN
    check_not_overwriting(
        output, filter(None, [source, target_prefix, shortlist, dictionary])
    )  # before torch is loaded
    from attnkit.data.loader import Batching
    from attnkit.tasks.translation.stream import TranslateRequest, translate_stream

    options = {
        "beam_size": beam_size,
        "sampling": sampling or None,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "seed": seed,
        "length_penalty": length_penalty,
        "coverage_penalty": coverage_penalty,
        "repetition_penalty": repetition_penalty,
        "no_repeat_ngram_size": no_repeat_ngram_size,
        "min_length": min_length,
        "max_length": max_length,
        "num_hypotheses": num_hypotheses,
    }
    request = TranslateRequest(
        runs=runs,
        source=source,
        search={name: value for name, value in options.items() if value is not None},
        prefixes=target_prefix,
        scores=return_scores,
        attention=return_attention,
        as_json=json,
        batching=Batching(batch_size or (64 if batch_type == "sentences" else 4096), batch_type),
        workers=workers,
        device=device,
        precision=precision,
        threads=threads,
        checkpoint=checkpoint,
        strict=strict,
        shortlist=shortlist,
        unknowns=replace_unknowns,
        dictionary=dictionary,
    )
    with (
        console.prompting(input is None, "type a line to translate; Ctrl-D ends") as prompt,
        atomic.open_output(output) as stream,
    ):
        for lines in translate_stream(request, console.warn):
            stream.writelines(line + "\n" for line in lines)
            stream.flush()
            prompt()
