"""``attnkit check``: find problems in a parallel corpus."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Option

from attnkit.cli.options import Json, Source, Target, TargetVocab
from attnkit.errors import DataError, UsageError
from attnkit.progress import console
from attnkit.text.config import CheckConfig

if TYPE_CHECKING:
    from attnkit.quality.findings import CheckReport

DEFAULT = CheckConfig()
MAX_STRETCHES = 10  #: stretches that are listed one by one


def command(
    src: Source,
    tgt: Target,
    train_src: Annotated[
        Path | None, Option(help="Training source, to report overlap of these files, a test set, with it.")
    ] = None,
    train_tgt: Annotated[Path | None, Option(help="Training target, likewise.")] = None,
    valid_src: Annotated[
        Path | None, Option(help="Validation or test source, to report overlap of these files, a corpus, with it.")
    ] = None,
    valid_tgt: Annotated[Path | None, Option(help="Validation or test target, likewise.")] = None,
    src_lang: Annotated[
        str | None, Option(help="Language of the source, such as en; another one is reported.", metavar="CODE")
    ] = None,
    tgt_lang: Annotated[str | None, Option(help="Language of the target.", metavar="CODE")] = None,
    vocab: Annotated[Path | None, Option(help="Vocabulary, to count tokens and unknown tokens.")] = None,
    tgt_vocab: TargetVocab = None,
    max_length: Annotated[
        int | None, Option(help=f"Maximum length in tokens, with --vocab.  [default: {DEFAULT.max_length}]")
    ] = None,
    max_characters: Annotated[
        int | None, Option(help=f"Maximum length in characters, without --vocab.  [default: {DEFAULT.max_characters}]")
    ] = None,
    max_ratio: Annotated[
        float, Option(help="Maximum factor by which a pair's length ratio may differ from the corpus median.")
    ] = DEFAULT.max_ratio or 0.0,
    export_to: Annotated[
        Literal["ctranslate2", "huggingface", "marian"] | None,
        Option(help="Also check whether a trained model can be exported (translation, or --set task=NAME)."),
    ] = None,
    settings: Annotated[Path | None, Option("--config", help="Configuration file for --export-to.")] = None,
    sets: Annotated[
        list[str] | None,
        Option("--set", help="Configuration key for --export-to, e.g. model.norm=post.", metavar="KEY=VALUE"),
    ] = None,
    strict: Annotated[bool, Option(help="Exit with code 3 on any finding.")] = False,
    json: Json = False,
) -> None:
    """Check a parallel corpus for problems; exit 0 if usable for training, 3 if not.

    Alignment, languages, damage and repeats are checked. The verdict comes first, the command that mends it last.

    \b
    Examples:
      attnkit check a.en a.de
      attnkit check test.en test.de --train-src a.en --train-tgt a.de
      attnkit check a.en a.de --valid-src test.en --valid-tgt test.de
      attnkit check a.en a.de --src-lang en --tgt-lang de
      attnkit check a.en a.de --vocab vocab.json --max-length 200 --json
      attnkit check a.en a.de --export-to huggingface --set model.norm=post
      attnkit check a.en a.de --export-to huggingface --set task=mlm
    """
    from attnkit.config import validate
    from attnkit.quality.doctor import Expected, examine_pair
    from attnkit.quality.language_names import check_language
    from attnkit.text.tokenizer import load

    counts_tokens = max_length is not None and not vocab
    for is_wrong, what in (
        (train_tgt and not train_src, "--train-tgt requires --train-src"),
        (valid_tgt and not valid_src, "--valid-tgt requires --valid-src"),
        (train_src and valid_src, "--train-src and --valid-src cannot be combined"),
        (tgt_vocab and not vocab, "--tgt-vocab requires --vocab"),
        (counts_tokens, "--max-length counts tokens and requires --vocab; without a vocabulary use --max-characters"),
        (max_characters is not None and vocab, "--max-characters cannot be combined with --vocab; use --max-length"),
        ((settings or sets) and not export_to, "--config and --set require --export-to"),
    ):
        if is_wrong:
            raise UsageError(what)
    check_language(src_lang, "--src-lang")
    check_language(tgt_lang, "--tgt-lang")
    given = {"max_length": max_length, "max_characters": max_characters, "max_ratio": max_ratio}
    values = {name: value for name, value in given.items() if value is not None}
    config = validate(CheckConfig, values, {name: f"--{name.replace('_', '-')}" for name in values})
    source = load(vocab) if vocab else None
    vocabularies = (source, load(tgt_vocab) if tgt_vocab else source) if source else None
    others = (train_src, train_tgt) if train_src else (valid_src, valid_tgt) if valid_src else None
    expected = Expected(others="validation" if valid_src else "training", languages=(src_lang, tgt_lang))
    report = examine_pair(src, tgt, config, others=others, vocabularies=vocabularies, expected=expected)
    if json:
        shown = {**report.to_dict(), "remedy": console.command(*report.remedy) if report.remedy else None}
        console.result(dumps(shown, indent=1, ensure_ascii=False))
    else:
        console.result(as_text(report))
    if export_to is not None:
        from attnkit.conversion.preflight import check_exportable

        console.info(check_exportable(src, tgt, export_to, file=settings, sets=sets or ()))
    if not report.trainable or report.severity == "stop" or (strict and report.findings):
        raise typer.Exit(DataError.exit_code)


def as_text(report: CheckReport) -> str:
    """Format the report as text, in 80 columns except for long paths."""
    from attnkit.quality.findings import FEW, inflect
    from attnkit.quality.language_names import name_of

    rows: list[tuple[str, ...]] = []
    languages = report.src_language, report.tgt_language
    for side, path, n_lines, n_words, unknown, language in (
        ("source", report.src, report.n_src, report.n_src_words, report.src_unknown_rate, languages[0]),
        ("target", report.tgt, report.n_tgt, report.n_tgt_words, report.tgt_unknown_rate, languages[1]),
    ):
        counts = f"{n_lines:,} {inflect('[line|lines]', n_lines)}", f"{n_words:,} {inflect('[word|words]', n_words)}"
        name = (name_of(language) if language else "",) if any(languages) else ()
        rate = () if unknown is None else (f"{100 * unknown:.3f} % of tokens unknown",)
        rows.append((side, path, *counts, *name, *rate))
    lines = [fill(report.verdict, 80), console.table(rows, indent="")]
    for finding in report.findings:
        mark = "!" if finding.fatal else "-" if finding.dropped else " "
        said = finding.described
        side = "" if finding.side == "pair" or said.startswith(finding.side) else f"{finding.side}: "
        text = fill(f"{side}{said}", 80, initial_indent=f"{mark} {finding.count:>9,}  ", subsequent_indent=" " * 13)
        lines.append(text)
        if finding.first_line is not None:
            lines.append(f"{'':13}line {finding.first_line:,}" + (f": {finding.sample}" if finding.sample else ""))
    for stretch in report.stretches[:MAX_STRETCHES] if len(report.stretches) > 1 else ():
        shift = "" if stretch.shift is None else f", the target is in line {stretch.first + stretch.shift:,} and so on"
        lines.append(f"  lines {stretch.first:,} to {stretch.last:,}: {stretch.kind.replace('_', ' ')}{shift}")
    if len(report.stretches) > MAX_STRETCHES:
        lines.append(f"  and {len(report.stretches) - MAX_STRETCHES:,} more stretches (all of them: --json)")
    n_dropped = sum(finding.count for finding in report.findings if finding.dropped)
    if not report.trainable:
        lines.append("These files are not usable for training: fix the findings marked with !.")
    elif n_dropped:
        lines.append(f"Training drops {n_dropped:,} of {report.n_src:,} pairs, marked with -.")
    elif not report.findings:
        lines.append(f"No {'other ' if report.n_usable < FEW else ''}problems were found.")
    if report.remedy:
        lines.append(f"try: {console.command(*report.remedy)}")
    return "\n".join(lines)
