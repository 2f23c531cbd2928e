"""``attnkit align``: word alignment of parallel text."""

from contextlib import nullcontext
from json import dumps
from pathlib import Path
from typing import Annotated

from typer import Option

from attnkit.cli.options import JsonPairs, Quiet, Source, Summary, Target, TargetVocab
from attnkit.tasks.word_alignment.symmetrize import Method


def command(
    src: Source,
    tgt: Target,
    output: Annotated[Path | None, Option("-o", "--output", help="Lexicon file to write, tab-separated.")] = None,
    method: Annotated[
        Method,
        Option(
            help="Direction or symmetrization: forward, reverse, intersection, union, grow-diag, grow-diag-final, "
            "grow-diag-final-and.",
            metavar="METHOD",
        ),
    ] = "grow-diag-final-and",
    run: Annotated[Path | None, Option("--run", help="Align tokens of a run's vocabularies.", metavar="RUN")] = None,
    vocab: Annotated[Path | None, Option(help="Align the tokens of a vocabulary instead of words.")] = None,
    tgt_vocab: TargetVocab = None,
    iterations: Annotated[int, Option(min=1, max=1000, help="EM iterations.")] = 5,
    null_prob: Annotated[
        float | None, Option(help="Alignment probability of the NULL word. [default: 1 / (source length + 1)]")
    ] = None,
    min_prob: Annotated[float, Option(min=0, max=1, help="Minimum translation probability in the lexicon.")] = 0.001,
    best: Annotated[int, Option(min=1, help="Maximum number of translations per word of the lexicon.")] = 50,
    max_length: Annotated[int, Option(min=1, max=4096, help="Maximum words per line; longer pairs are skipped.")] = 256,
    max_pairs: Annotated[
        int, Option(min=1, max=1 << 31, help="Maximum number of word pairs in memory, about 100 bytes each.")
    ] = 33_554_432,
    summary: Summary = False,
    quiet: Quiet = False,
    json: JsonPairs = False,
) -> None:
    """Align the words of two files; print links as 0-0 1-2, one line per pair.

    Words are split at white space; links are zero-based source-target index pairs. The model is IBM Model 1.

    \b
    Examples:
      attnkit align a.en a.de > links
      attnkit align a.en a.de -o words.tsv --summary
      attnkit align a.en a.de --run run -o tokens.tsv --summary
    """
    from attnkit.io import atomic
    from attnkit.progress import console
    from attnkit.tasks.word_alignment.lexicon import Aligner, AlignRequest, as_pharaoh
    from attnkit.text.lines import check_not_overwriting

    check_not_overwriting(output, [src, tgt])
    request = AlignRequest(
        src, tgt, vocab=vocab, tgt_vocab=tgt_vocab, run=run, method=method, iterations=iterations, null_prob=null_prob,
        min_prob=min_prob, best=best, max_length=max_length, max_pairs=max_pairs,
    )  # fmt: skip
    with atomic.open_output(output) if output else nullcontext() as book, console.StatusLine() as status:
        aligner = Aligner(request, status.update)
        aligner.learn(book, links=not summary)
    with atomic.open_output(None) as stream:
        for links in () if summary else aligner.links():
            stream.write((dumps({"alignment": links}) if json else as_pharaoh(links)) + "\n")
        if json:
            stream.write(dumps(vars(aligner.report)) + "\n")
    report = aligner.report
    for number, text in (
        (report.blank, "are not aligned: one side is blank"),
        (report.long, f"are not aligned: more than {max_length:,} words on one side (--max-length)"),
    ):
        if number:
            console.warn(f"{number:,} pairs {text}")
    if report.forgotten:
        console.warn(f"--max-pairs was exceeded: rare word pairs were pruned {report.forgotten:,} times")
    lines = [f"{report.pairs:,} pairs, {report.src_words:,} source words, {report.tgt_words:,} target words"]
    for direction, values in report.perplexity.items():
        lines.append(f"{direction}: perplexity {' '.join(f'{value:,.2f}' for value in values)} before each iteration")
    if output is not None:
        lines.append(f"{output}: {report.entries:,} entries")
    (console.result if summary and not json else console.info)("\n".join(lines))
