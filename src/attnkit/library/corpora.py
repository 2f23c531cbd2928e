"""Calls on text: check, clean, vocab, align and score. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attnkit.config import validate
from attnkit.config.arguments import Count, checked
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.io.plain_data import PlainResult
from attnkit.library.files import Files, Text, check_lengths, lines_of, paths_of
from attnkit.metrics.bleu import BleuTokenizer, MetricName, MetricScore
from attnkit.progress.calls import call_progress
from attnkit.tasks.word_alignment.symmetrize import Method
from attnkit.text.toy.corpus import Kind

if TYPE_CHECKING:
    from attnkit.quality.clean_output import CleanReport
    from attnkit.quality.findings import CheckReport
    from attnkit.tasks.word_alignment.lexicon import AlignmentReport
    from attnkit.text.tokenizer import Tokenizer


@checked
def check(
    src: str | Path,
    tgt: str | Path,
    *,
    train_src: str | Path | None = None,
    train_tgt: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> CheckReport:
    """Check a parallel corpus, as ``attnkit check`` does.

    Args:
        src: source text, one sentence per line.
        tgt: target text.
        train_src: training source; lines that also occur in it are reported.
        train_tgt: training target.
        settings: limits, e.g. ``{"max_ratio": 4.0}``.

    Raises:
        DataError: a file cannot be read as text.
    """
    from attnkit.quality.doctor import examine_pair
    from attnkit.text.config import CheckConfig

    others = None if train_src is None else (Path(train_src), None if train_tgt is None else Path(train_tgt))
    return examine_pair(Path(src), Path(tgt), validate(CheckConfig, dict(settings or {})), others=others)


@checked
def clean(
    src: str | Path,
    tgt: str | Path,
    output: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> CleanReport:
    """Write the pairs worth training on, and why others were dropped, to a folder.

    ``settings``: filters and repairs of ``attnkit clean``, e.g. ``{"realign": True, "duplicates": "near"}``. Calling it
    again resumes an interrupted cleaning. ``quiet`` shows no progress.

    Raises:
        DataError: no pair is left.
        UsageError: the folder holds something else, or the settings changed.
    """
    from attnkit.quality.clean import clean as clean_files
    from attnkit.quality.clean_output import CleanRequest
    from attnkit.quality.config import CleanConfig

    config = validate(CleanConfig, dict(settings or {}))
    with call_progress(quiet) as status:

        def progress(n_lines: int) -> None:
            status.update(f"{n_lines:,} source lines done" if n_lines else "judging the alignment")

        return clean_files(CleanRequest(Path(src), Path(tgt), Path(output), config, overwrite), progress=progress)


@checked
def vocab(
    files: Files,
    output: str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    placeholders: bool = False,
    annotate_terms: bool = False,
    quiet: bool = False,
) -> Tokenizer:
    """Build a vocabulary from text files and return its tokenizer.

    ``settings``: options of ``attnkit vocab``, e.g. ``{"kind": "unigram", "size": 4000}``. ``output``: file to write.
    ``placeholders`` and ``annotate_terms`` add the symbols that the keys of ``data`` need. ``quiet`` shows no progress.

    Raises:
        DataError: a file cannot be read as text.
        UsageError: an invalid option.
    """
    from attnkit.text.config import VocabularyConfig
    from attnkit.text.inline_symbols import inline_symbols
    from attnkit.text.vocabulary import train_vocabulary

    values = dict(settings or {})
    inline = inline_symbols(placeholders=placeholders, annotate_terms=annotate_terms)
    values["symbols"] = [*inline, *values.get("symbols", ())]
    paths, config = paths_of(files), validate(VocabularyConfig, values)
    with call_progress(quiet) as status:
        status.update(f"reading {', '.join(map(str, paths))}")
        tokenizer = train_vocabulary(paths, config)
    if output is not None:
        atomic.write_text(Path(output), tokenizer.to_json())
    return tokenizer


@dataclass(frozen=True)
class WordAlignment(PlainResult):
    """Aligned words of two files."""

    links: list[list[tuple[int, int]]]  #: of each line pair: (source word, target word), zero-based
    report: AlignmentReport


@checked
def align(
    src: str | Path,
    tgt: str | Path,
    *,
    output: str | Path | None = None,
    run: str | Path | None = None,
    method: Method = "grow-diag-final-and",
    iterations: Count = 5,
    quiet: bool = False,
) -> WordAlignment:
    """Align the words of two files by IBM Model 1, as ``attnkit align`` does.

    Args:
        src: source text, one sentence per line.
        tgt: target text.
        output: lexicon file to write, tab-separated.
        run: run whose tokens are aligned instead of words.
        method: direction or symmetrization heuristic.
        iterations: EM iterations.
        quiet: whether to show no progress.

    Raises:
        DataError: line counts differ, or there is nothing to align.
    """
    from attnkit.tasks.word_alignment.lexicon import Aligner, AlignRequest

    given = None if run is None else Path(run)
    request = AlignRequest(Path(src), Path(tgt), run=given, method=method, iterations=iterations)
    with call_progress(quiet) as status, nullcontext() if output is None else atomic.open_output(Path(output)) as book:
        aligner = Aligner(request, status.update)
        aligner.learn(book, links=True)
    return WordAlignment([list(links) for links in aligner.links()], aligner.report)


@checked
def toy_corpus(
    kind: Kind,
    folder: str | Path,
    *,
    pairs: Count = 25_000,
    valid: Count = 500,
    test: Count = 1_000,
    seed: Annotated[int, 0] = 1,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Generate a corpus for experiments; return its files by name, e.g. ``train.en``.

    Args:
        kind: ``english-french``, ``reverse`` (digits), ``summary``, ``code`` or ``reviews``.
        folder: folder of the files; it may hold the same files already.
        pairs: number of training pairs.
        valid: number of validation pairs.
        test: number of test pairs.
        seed: the same arguments give the same files.
        overwrite: whether to replace files that differ.

    Raises:
        UsageError: the folder has other files of these names.
    """
    from attnkit.text.toy.corpus import make_files, write_files

    made = make_files(kind, pairs, seed, n_valid=valid, n_test=test)
    paths = {name: Path(folder) / name for name in made}
    write_files({paths[name]: lines for name, lines in made.items()}, overwrite)
    return paths


@checked
def score_bleu(
    hypotheses: Text,
    references: Text,
    *more_references: Text,
    metric: MetricName = "bleu",
    tokenize: BleuTokenizer = "13a",
    lowercase: bool = False,
) -> MetricScore:
    """Score translations by BLEU, chrF or TER; texts are lists of lines, or files.

    Raises:
        DataError: the texts do not have the same number of lines, or none.
    """
    from attnkit.metrics.bleu import build_metric, score_corpus

    hyps, *versions = (lines_of(text) for text in (hypotheses, references, *more_references))
    if not hyps:
        raise DataError("no translations to score", where="hypotheses", help="give lines, or a file that has some")
    for lines in versions:
        check_lengths("translations", "references", hyps, lines)
    return score_corpus(build_metric(metric, tokenize=tokenize, lowercase=lowercase), hyps, versions)
