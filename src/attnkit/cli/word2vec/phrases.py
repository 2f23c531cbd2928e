"""Command ``attnkit word2vec phrases``: find and join phrases in text."""

import json as codec
import textwrap
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from attnkit.cli.options import OutputFile, Quiet
from attnkit.config import validate
from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.progress import console
from attnkit.text.config import PhrasesConfig

_SHOWN, _COLUMNS = 10, 79


def command(
    paths: Annotated[list[Path], Argument(metavar="FILE...", help="Plain or compressed text; - reads stdin.")],
    output: OutputFile = None,
    passes: Annotated[int | None, Option(help="Number of passes; 2 passes join up to four words. [default: 1]")] = None,
    scoring: Annotated[Literal["count", "npmi"] | None, Option(help="Score of word pairs. [default: count]")] = None,
    threshold: Annotated[float | None, Option(help="Minimum score. [default: 100; 0.5 for npmi]")] = None,
    min_count: Annotated[int | None, Option(help="Minimum frequency of words and pairs. [default: 5]")] = None,
    connector: Annotated[list[str] | None, Option(help="Word allowed in phrases; repeatable.", metavar="WORD")] = None,
    joiner: Annotated[str | None, Option(help="Separator between joined words. [default: _]")] = None,
    max_pairs: Annotated[
        int | None, Option(help="Maximum number of word pairs in memory, about 50 bytes each. [default: 8388608]")
    ] = None,
    lower: Annotated[bool, Option("--lower", help="Lower-case the text.")] = False,
    save: Annotated[Path | None, Option(help="Write the phrases with their scores.", metavar="FILE")] = None,
    given: Annotated[
        Path | None, Option("--with", help="Phrase file to apply instead of finding phrases.", metavar="FILE")
    ] = None,
    quiet: Quiet = False,
    json: Annotated[bool, Option("--json", help="Print a JSON report; requires -o.")] = False,
) -> None:
    """Find and join phrases, e.g. new york -> new_york.

    \b
    Examples:
      attnkit word2vec phrases text.txt -o joined.txt --passes 2
      attnkit word2vec phrases text.txt -o joined.txt --connector of --save p.tsv
      attnkit word2vec phrases b.txt --with p.tsv | attnkit word2vec train - -o b

    To train on joined text without writing it, use `attnkit word2vec train --phrases 2`.
    """
    from attnkit.data.words import join_words
    from attnkit.text.lines import check_not_overwriting
    from attnkit.text.phrases import load

    flags: dict[str, Any] = {"passes": passes, "scoring": scoring, "threshold": threshold, "min_count": min_count}
    flags |= {"connectors": connector, "joiner": joiner, "max_pairs": max_pairs}
    changed = {name: value for name, value in flags.items() if value is not None}
    if given is not None and (changed or save):
        raise UsageError("--with cannot be combined with --save or the options for finding phrases")
    if json and output is None:
        what = "--json requires -o: text and report cannot both go to standard output"
        raise UsageError(what, help="add -o FILE")
    origins = {name: "--connector" if name == "connectors" else f"--{name.replace('_', '-')}" for name in changed}
    asked = validate(PhrasesConfig, {"passes": 1, **changed}, origins) if given is None else load(given)
    check_not_overwriting(output, paths)
    check_not_overwriting(save, [*paths, *([output] if output else [])])
    with console.StatusLine() as status, atomic.open_output(output) as out:
        report = join_words(paths, asked, lower, out, status.update)
    if save is not None:
        atomic.write_text(save, report.phrases.to_text())
    for warning in report.warnings:
        console.warn(warning)
    phrases = report.phrases
    if json:
        console.result(codec.dumps(report.to_dict(), indent=1, ensure_ascii=False))
        return
    lines = [f"{report.n_read:,} words became {report.n_written:,}"]
    for number, passed in enumerate(phrases.passes, 1):
        best = sorted(passed, key=lambda phrase: -phrase.count)[:_SHOWN]
        names = ", ".join(phrases.config.joiner.join(phrase.parts) for phrase in best)
        lines.append(f"pass {number}: {len(passed):,} phrases" + ", most frequent" * bool(best))
        lines += textwrap.wrap(console.printable(names), _COLUMNS, initial_indent="  ", subsequent_indent="  ")
    console.info("\n".join(lines))
