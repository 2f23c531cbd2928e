"""Calls on runs: average, verify, export, import, compare, report. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from attnkit.analysis.run_table import RunRow, SortKey
from attnkit.config.arguments import Count, checked
from attnkit.errors import UsageError
from attnkit.formats.exportable import Quantization
from attnkit.library.files import warn
from attnkit.metrics.bleu import PairedTestName

if TYPE_CHECKING:
    from attnkit.analysis.compare_translators import TestComparison
    from attnkit.analysis.verify import VerificationReport
    from attnkit.conversion.export_ctranslate2 import ExportResult
    from attnkit.conversion.imported_run import ImportResult
    from attnkit.engine.averaging import AverageResult
    from attnkit.engine.sweep import SweepOutcome
    from attnkit.library.results import Report
    from attnkit.tasks.language_modeling.compare import PositionPrediction


@checked
def average(run: str | Path, n: Annotated[int, 2] | None = None, *, checkpoints: Sequence[str] = ()) -> AverageResult:
    """Write the mean of the last ``n`` or the named checkpoints to a run.

    Raises:
        RunError: there are too few checkpoints, or their models differ.
        UsageError: both ``n`` and ``checkpoints`` are given.
    """
    from attnkit.engine.averaging import average_run

    return average_run(Path(run), n, list(checkpoints))


@checked
def verify(run: str | Path) -> VerificationReport:
    """Check every file of a run against its checksum.

    Raises:
        RunError: the folder is not a run.
    """
    from attnkit.analysis.verify import verify_run

    return verify_run(Path(run))


@checked
def export(
    run: str | Path,
    folder: str | Path,
    *,
    to: Literal["huggingface", "ctranslate2", "marian", "peft", "attnkit"],
    checkpoint: str | None = None,
    adapter: str | Path | None = None,
    quantization: Quantization = "float32",
) -> ExportResult:
    """Export a run to another system; ``quantization`` is CTranslate2's.

    ``attnkit`` is a run with merged weights: those of the run's adapter, or of the run ``adapter``.

    Raises:
        RunError: the run is damaged, or the other system has no such model.
        UsageError: the folder is not empty, ctranslate2 is not installed, or ``adapter`` is given for another system.
    """
    if adapter is not None and to != "attnkit":
        raise UsageError("adapter requires to='attnkit'", help="merge it first")
    if to == "peft":
        from attnkit.conversion.adapters import export_peft

        return export_peft(Path(run), Path(folder), checkpoint=checkpoint)
    if to == "attnkit":
        from attnkit.conversion.adapters import merge_run

        given = None if adapter is None else Path(adapter)
        return merge_run(Path(run), Path(folder), checkpoint=checkpoint, adapter=given)
    if to == "huggingface":
        from attnkit.conversion.export_huggingface import export_huggingface

        return export_huggingface(Path(run), Path(folder), checkpoint=checkpoint)
    if to == "marian":
        from attnkit.conversion.export_marian import export_marian

        return export_marian(Path(run), Path(folder), checkpoint=checkpoint)
    from attnkit.conversion.export_ctranslate2 import export_ctranslate2

    return export_ctranslate2(Path(run), Path(folder), checkpoint=checkpoint, quantization=quantization)


@checked
def import_run(
    folder: str | Path,
    run: str | Path,
    *,
    base: str | Path | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    prune_vocab: Sequence[str | Path] = (),
    source_prefix: str = "",
) -> ImportResult:
    """Import a Hugging Face folder as a run, or an adapter of PEFT for ``base``.

    ``src_lang`` and ``tgt_lang`` are the languages of an M2M100, NLLB-200 or mBART-50, e.g. ``eng_Latn``, between which
    the run translates unless a call names others; without, each call names both.
    ``prune_vocab`` are files of text: entries of a translator that they do not use are left out. ``source_prefix`` is
    the text that a T5 or mT5 gets before each source, e.g. ``translate English to German:``.

    Raises:
        RunError: the model is unsupported or damaged.
        UsageError: the run exists, a language is unknown, or the vocabulary cannot be pruned.
        DataError: a file of text cannot be read.
    """
    if base is not None:
        from attnkit.conversion.adapters import import_peft

        return import_peft(Path(folder), Path(base), Path(run))
    from attnkit.conversion.import_huggingface import import_huggingface

    text = [Path(file) for file in prune_vocab]
    given = {"src_lang": src_lang, "tgt_lang": tgt_lang}
    return import_huggingface(Path(folder), Path(run), **given, prune_vocab=text, source_prefix=source_prefix)


@checked
def compare(
    systems: Sequence[str | Path],
    tests: Sequence[tuple[str | Path | None, str | Path]],
    *,
    test: PairedTestName = "bootstrap",
    groups: bool = False,
    n_lines: Annotated[int, 0] = 0,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    threads: Count | None = None,
) -> list[TestComparison]:
    """Return the scores of translators on test files, with a paired test.

    Args:
        systems: two runs or more; each is compared with the first, e.g. the one before adaptation. Files of
            translations are compared on one test, whose source may be None.
        tests: source and target file of each test.
        test: ``bootstrap`` (Koehn 2004) or ``randomization`` (Riezler and Maxwell 2005).
        groups: whether to score groups of lines as well, e.g. by length.
        n_lines: number of lines to return that differ most.
        src_lang: source language of imported runs with language codes, e.g. ``eng_Latn``.
        tgt_lang: target language of runs with several, e.g. ``de``.
        threads: CPU threads; None: all.

    Raises:
        RunError: a run cannot be used.
        UsageError: there are fewer than two systems, a file is missing or one too many, or no run uses a language.
        DataError: a file is missing or empty, or line counts differ.
    """
    from attnkit.analysis.compare_translators import check_systems, compare_translators
    from attnkit.tasks.translation.directions import LanguagePair

    paths = [Path(system) for system in systems]
    files = check_systems(paths, [Path(src) for src, _ in tests if src is not None], [Path(tgt) for _, tgt in tests])
    options: dict[str, Any] = {"test": test, "groups": groups, "n_lines": n_lines, "threads": threads}
    return list(compare_translators(paths, files, languages=LanguagePair(src_lang, tgt_lang), **options))


@checked
def list_runs(*folders: str | Path, sort: SortKey = "path") -> list[RunRow]:
    """Return the runs below folders, with their scores and the settings that differ.

    ``sort`` is ``path``, ``best`` (the best run of each task first), ``minutes`` or ``step``.

    Raises:
        RunError: a folder is missing, or there is no run.
        UsageError: no folder, or an unknown ``sort``.
    """
    from attnkit.analysis import run_table

    if not folders:
        raise UsageError("no folder of runs", where="folders", help="list_runs('.') lists those below this folder")
    return run_table.list_runs([Path(folder) for folder in folders], sort)


@checked
def report(
    *runs: str | Path,
    tests: Sequence[tuple[str | Path, str | Path]] = (),
    texts: Sequence[str] = (),
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    threads: Count | None = None,
    quiet: bool = False,
) -> Report:
    """Return a report on runs; a notebook shows its curves, ``page()`` is its HTML.

    Args:
        runs: run folders of any task, finished or not; test files are compared with the first.
        tests: source and target file of each test, for two translators or more.
        texts: lines whose attention is shown.
        src_lang: source language of imported translators with language codes.
        tgt_lang: target language of translators with several, e.g. ``de``.
        threads: CPU threads; None: all.
        quiet: whether to show no progress.

    Raises:
        UsageError: no run, too many, one twice, tests for a single run, or a language that nothing uses.
        RunError: a folder is not a run or has no records.
        DataError: a test file cannot be used.
    """
    from attnkit.analysis.run_report import ReportRequest, build_report
    from attnkit.library.results import Report
    from attnkit.progress.calls import call_progress
    from attnkit.tasks.translation.directions import LanguagePair

    files = [(Path(src), Path(tgt)) for src, tgt in tests]
    request = ReportRequest(files, texts, LanguagePair(src_lang, tgt_lang), threads)
    with call_progress(quiet) as status:
        return Report(build_report([Path(run) for run in runs], request, status.update))


@checked
def sweep(file: str | Path, output: str | Path, *, jobs: Count = 1, quiet: bool = False) -> SweepOutcome:
    """Train a run for each combination of values and seeds, as ``attnkit sweep``.

    Args:
        file: YAML file of the sweep.
        output: folder for the runs; an existing sweep there is resumed.
        jobs: runs at a time; they share the CPUs.
        quiet: whether to show no progress.

    Raises:
        UsageError: the file is not as it should be, or ``output`` has a sweep of other settings.
    """
    from attnkit.engine.sweep import Sweep
    from attnkit.engine.sweep_config import read_sweep
    from attnkit.progress.calls import call_progress

    plan = read_sweep(Path(file))
    with call_progress(quiet) as status:
        return Sweep(plan, Path(output), n_jobs=jobs, tell=status.update).run()


@checked
def compare_lm(
    bert: str | Path,
    gpt: str | Path,
    text: str,
    *,
    top: Count = 3,
    device: str = "auto",
    threads: Count | None = None,
    checkpoint: str | None = None,
) -> tuple[PositionPrediction, PositionPrediction]:
    """Return the predictions of BERT and GPT at each position of a text.

    Raises:
        DataError: the text is blank, contains a mask, or is too long for a model.
        RunError: the runs are not one BERT and one GPT.
    """
    from attnkit.runtime.devices import set_threads
    from attnkit.tasks.language_modeling.compare import compare

    set_threads(threads)
    return compare((Path(bert), Path(gpt)), text, top, device=device, checkpoint=checkpoint, warn=warn)
