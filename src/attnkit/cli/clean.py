"""``attnkit clean``: filter and repair a parallel corpus."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from attnkit.cli.options import Json, Quiet, Source, SourceLanguage, Target, TargetLanguage
from attnkit.errors import UsageError
from attnkit.progress import console
from attnkit.quality.config import CleanConfig

if TYPE_CHECKING:
    from attnkit.quality.clean_output import CleanReport

DEFAULT = CleanConfig()


def command(
    src: Source,
    tgt: Target,
    output: Annotated[Path, Option("-o", "--output", help="Folder to write.", metavar="FOLDER")],
    realign: Annotated[bool, Option(help="Pair shifted and exchanged lines with their own targets.")] = False,
    repair: Annotated[bool, Option(help="Repair encodings, HTML references, look-alike letters, spaces.")] = False,
    strip_tags: Annotated[bool, Option(help="Remove HTML tags.")] = False,
    duplicates: Annotated[
        Literal["exact", "near", "keep"], Option(help="Repeated pairs to drop; near: with few words changed.")
    ] = DEFAULT.duplicates,
    max_ratio: Annotated[
        float, Option(help="Maximum factor by which a pair's length ratio may differ from the corpus median.")
    ] = DEFAULT.max_ratio or 0.0,
    min_characters: Annotated[int, Option(help="Minimum length of a line.")] = DEFAULT.min_characters,
    max_characters: Annotated[int, Option(help="Maximum length of a line.")] = DEFAULT.max_characters,
    keep_copies: Annotated[bool, Option(help="Keep pairs whose target is a copy of the source.")] = False,
    any_language: Annotated[bool, Option(help="Keep lines in another language or script than their side.")] = False,
    drop_repeated: Annotated[bool, Option(help="Drop pairs with words repeated four times or more in a row.")] = False,
    max_uses: Annotated[
        int | None, Option(help="Maximum number of pairs with the same source or the same target line.")
    ] = None,
    test: Annotated[
        list[Path] | None,
        Option(help="Text of a test set; pairs that overlap it are dropped; repeatable.", metavar="FILE"),
    ] = None,
    min_evidence: Annotated[
        float | None, Option(help="Minimum evidence of a pair in nats (-6 to 6), by a lexicon of the corpus.")
    ] = None,
    run: Annotated[Path | None, Option(help="Run that scores pairs, for --min-log-prob.", metavar="RUN")] = None,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    min_log_prob: Annotated[float | None, Option(help="Minimum log-probability per target token, with --run.")] = None,
    processes: Annotated[
        int | None, Option(min=1, help="Processes; the result does not depend on it.  [default: cores]")
    ] = None,
    overwrite: Annotated[bool, Option(help="Replace an earlier result in the folder.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Filter and repair a parallel corpus; write kept and dropped pairs.

    FOLDER gets both files, dropped.tsv (line, reason, source, target) and report.json. Rerun the command to resume.

    \b
    Examples:
      attnkit clean a.en a.de -o cleaned
      attnkit clean a.en a.de -o cleaned --realign --repair
      attnkit clean a.en a.de -o cleaned --duplicates near --min-evidence 0
      attnkit clean a.en a.de -o cleaned --test test.en --max-uses 20
      attnkit clean a.en a.de -o cleaned --run run --min-log-prob -9
    """
    from attnkit.config import validate
    from attnkit.io.job_folder import is_finished
    from attnkit.quality.clean import clean
    from attnkit.quality.clean_output import CleanRequest
    from attnkit.tasks.translation.directions import LanguagePair, check_languages_used

    if (run is None) != (min_log_prob is None):
        raise UsageError("--run and --min-log-prob require each other")
    given = {
        "realign": realign, "repair": repair, "strip_tags": strip_tags, "duplicates": duplicates,
        "max_ratio": max_ratio, "min_characters": min_characters, "max_characters": max_characters,
        "min_evidence": min_evidence, "min_log_prob": min_log_prob, "drop_copies": not keep_copies,
        "check_languages": not any_language, "drop_repeated": drop_repeated, "max_uses": max_uses,
    }  # fmt: skip
    flags = {name: f"--{name.replace('_', '-')}" for name in given}
    config = validate(CleanConfig, given, flags)
    score, scored_by = None, ""
    if run is None:
        check_languages_used(LanguagePair(src_lang, tgt_lang), "--run")
    else:
        from attnkit.tasks.translation.pair_scorer import open_pair_scorer  # imports torch

        score, scored_by = open_pair_scorer(run, LanguagePair(src_lang, tgt_lang), console.warn)
    request = CleanRequest(src, tgt, output, config, overwrite, scored_by, tuple(test or ()), processes)
    is_again = is_finished(output) and not overwrite
    with console.StatusLine() as status:

        def progress(n_lines: int) -> None:
            status.update(f"{n_lines:,} source lines done" if n_lines else "judging the alignment")

        report = clean(request, score, progress)
    console.result(dumps(asdict(report), indent=1) if json else as_text(report, output))
    if is_again:
        console.info(f"{output} is finished; add --overwrite to start again")


def as_text(report: CleanReport, output: Path) -> str:
    """Format the counts, which add up to the source lines read."""
    rows = [(f"{report.n_src:,}", "source lines read"), (f"{report.kept:,}", f"kept in {output}")]
    for count, text in ((report.realigned, "of them realigned"), (report.repaired, "of them repaired")):
        if count:
            rows.append((f"{count:,}", text))
    by_count = sorted(report.dropped.items(), key=lambda item: (-item[1], item[0]))
    rows += [(f"{count:,}", f"dropped: {reason.replace('_', ' ')}") for reason, count in by_count]
    if report.unused_targets:
        rows.append((f"{report.unused_targets:,}", "target lines unused"))
    width = max(len(count) for count, _ in rows)
    return "\n".join(f"{count:>{width}}  {text}" for count, text in rows)
