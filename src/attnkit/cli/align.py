"""``attnkit align``: which words of two files belong together."""

from __future__ import annotations

from contextlib import nullcontext
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnkit.tasks.word_alignment.symmetrize import Method

if TYPE_CHECKING:
    from attnkit.tasks.word_alignment.lexicon import Report


def command(
    src: Annotated[Path, typer.Argument(help="Source text; plain, .gz, .xz or .bz2.", metavar="SRC")],
    tgt: Annotated[Path, typer.Argument(help="Target text, line by line.", metavar="TGT")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where to write the dictionary, as tab-separated text.")
    ] = None,
    method: Annotated[
        Method, typer.Option(help="Links of one direction, or how those of both become one.")
    ] = "grow-diag-final-and",
    run: Annotated[
        Path | None, typer.Option("--run", help="Align the tokens of a run's vocabularies.", metavar="RUN")
    ] = None,
    vocab: Annotated[
        Path | None, typer.Option(help="Align the tokens of a vocabulary, not words.", metavar="FILE")
    ] = None,
    tgt_vocab: Annotated[
        Path | None, typer.Option(help="Vocabulary of the target, if it has its own.", metavar="FILE")
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, max=1000, help="Of expectation and maximisation.")] = 5,
    null_prob: Annotated[
        float | None, typer.Option(help="Probability that a word comes from none. [default: as from any other]")
    ] = None,
    min_prob: Annotated[
        float, typer.Option(min=0, max=1, help="Less likely translations are not in the dictionary.")
    ] = 0.001,
    best: Annotated[int, typer.Option(min=1, help="Most translations of a word in the dictionary.")] = 50,
    max_length: Annotated[
        int, typer.Option(min=1, max=4096, help="Longer lines, counted in words, are not aligned.")
    ] = 256,
    max_pairs: Annotated[
        int, typer.Option(min=1, max=1 << 31, help="Most pairs of words that are kept; some 100 bytes each.")
    ] = 33_554_432,
    summary: Annotated[bool, typer.Option("--summary", help="Only the totals.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a pair, and one for the totals.")] = False,
) -> None:
    """Print which words of two files belong together: links as 0-0 1-2, a line for each pair of lines.

    Words lie between white space; a link is source place, target place, counted from 0. The model is IBM Model 1.

    \b
    Examples:
      attnkit align a.en a.de > links
      attnkit align a.en a.de -o words.tsv --summary
      attnkit align a.en a.de --run run -o tokens.tsv --summary
    """
    from attnkit.cli import console
    from attnkit.io import atomic
    from attnkit.tasks.word_alignment.lexicon import Aligner, AlignRequest, as_dictionary, as_pharaoh
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
            stream.write(dumps(as_dictionary(aligner.report)) + "\n")
    for text in warnings_of(aligner.report, max_length):
        console.warn(text)
    (console.result if summary and not json else console.info)(as_text(aligner.report, output))


def warnings_of(report: Report, max_length: int) -> list[str]:
    """Return what was not aligned, and why."""
    found = []
    if report.blank:
        found.append(f"{report.blank:,} pairs are blank on a side and have no links")
    if report.long:
        found.append(f"{report.long:,} pairs have more than {max_length:,} words on a side and no links (--max-length)")
    if report.forgotten:
        found.append(f"there were too many pairs of words; rare ones were forgotten {report.forgotten:,} times")
    return found


def as_text(report: Report, output: Path | None) -> str:
    """Return the totals for people."""
    lines = [f"{report.pairs:,} pairs, {report.src_words:,} source and {report.tgt_words:,} target words"]
    for direction, values in report.perplexity.items():
        lines.append(f"{direction}: perplexity {' '.join(f'{value:,.2f}' for value in values)} before each iteration")
    if output is not None:
        lines.append(f"{output}: {report.entries:,} entries")
    return "\n".join(lines)
