"""``attnkit report``: one page about runs."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from attnkit.cli.options import Json, Quiet, SourceLanguage, TargetLanguage, Threads

if TYPE_CHECKING:
    from attnkit.analysis.run_report import RunReport
    from attnkit.plotting.figures import PictureFormat


def command(
    runs: Annotated[list[Path], Argument(help="Run folders; the first is compared with.", metavar="RUN")],
    output: Annotated[Path | None, Option("-o", "--output", help="HTML page. [default: report.html]")] = None,
    pictures: Annotated[
        Path | None, Option(help="Folder for a picture of each chart (needs attnkit[plot]).", metavar="DIR")
    ] = None,
    picture_format: Annotated[Literal["svg", "png", "pdf"], Option(help="Format of --pictures.")] = "svg",
    src: Annotated[list[Path] | None, Option(help="Test source; repeatable.", metavar="FILE")] = None,
    tgt: Annotated[list[Path] | None, Option(help="Test target; once per --src.", metavar="FILE")] = None,
    text: Annotated[list[str] | None, Option(help="Line whose attention is shown; repeatable.", metavar="TEXT")] = None,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    threads: Threads = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write one page about runs: curves, settings, samples, tests, attention.

    The page needs no network and has no scripts. Runs may be of any task, finished or not. Test files are for two
    translators or more: each is compared with the first run, as "attnkit compare --groups --lines 10" does. --json
    prints what the page has instead of writing it.

    \b
    Examples:
      attnkit report run
      attnkit report run1 run2 -o runs.html --src test.en --tgt test.de
      attnkit report run1 run2 --text "A dog runs." --pictures figures
      attnkit report run --json
    """
    from attnkit.analysis.compare_translators import check_tests
    from attnkit.analysis.run_report import ReportRequest, build_report
    from attnkit.errors import UsageError
    from attnkit.io import atomic
    from attnkit.io.plain_data import plain
    from attnkit.progress import console
    from attnkit.tasks.translation.directions import LanguagePair

    if json and output is not None:
        raise UsageError("--json prints the report instead of writing it", where="-o", help="leave one out")
    page = output or Path("report.html")
    for run in runs:
        if run.resolve() in page.resolve().parents:
            raise UsageError(f"output file {page} is inside the run folder", help="write it elsewhere")
    tests = check_tests(src or [], tgt or []) if src or tgt else ()
    request = ReportRequest(tests, text or (), LanguagePair(src_lang, tgt_lang), threads)
    with console.StatusLine(plain_every=60.0) as status:
        report = build_report(runs, request, status.update)
    if pictures is not None:
        write_pictures(report, pictures, picture_format)
    if json:
        console.result(dumps(plain(asdict(report)), ensure_ascii=False))
        return
    from attnkit.analysis.report_page import report_page

    atomic.write_text(page, report_page(report))
    console.info(f"wrote {page}")


def write_pictures(report: RunReport, folder: Path, format: PictureFormat) -> None:
    """Write a picture of each chart, named after it."""
    from attnkit.analysis.run_report import charts
    from attnkit.io import atomic
    from attnkit.plotting.figures import curves_picture
    from attnkit.progress import console

    atomic.make_dirs(folder)
    for chart in charts(report):
        path = folder / f"{chart.title.replace(' ', '-').lower()}.{format}"
        curves = [curve for curve in chart.curves if curve.x]
        atomic.write_bytes(path, curves_picture(curves, f"{chart.title}, by {chart.x_label}", format))
        console.info(f"wrote {path}")
