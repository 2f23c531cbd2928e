"""Calls on text: check, clean, vocab, align and score. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attnkit.config import validate
from attnkit.config.arguments import Count, checked
from attnkit.errors import DataError, UsageError
from attnkit.io import atomic
from attnkit.io.plain_data import PlainResult
from attnkit.library.files import Files, Text, as_path, check_lengths, lines_of, paths_of, warn
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
    valid_src: str | Path | None = None,
    valid_tgt: str | Path | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    vocab: str | Path | None = None,
    tgt_vocab: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> CheckReport:
    """Check a parallel corpus, as ``attnkit check`` does.

    Args:
        src: source text, one sentence per line.
        tgt: target text.
        train_src: training source of a test set; lines that also occur in it are reported.
        train_tgt: training target.
        valid_src: validation or test source of a corpus; lines that also occur in it are reported.
        valid_tgt: validation or test target.
        src_lang: language of the source, e.g. ``en``; another one is reported.
        tgt_lang: language of the target.
        vocab: vocabulary file, to count tokens and unknown tokens.
        tgt_vocab: vocabulary of the target, if it has its own.
        settings: limits, e.g. ``{"max_ratio": 4.0}``.

    Raises:
        DataError: a file cannot be read as text.
        UsageError: an unknown language, a target without its source, or training and validation files together.
    """
    from attnkit.quality.doctor import Expected, examine_pair
    from attnkit.quality.language_names import check_language
    from attnkit.text.config import CheckConfig
    from attnkit.text.tokenizer import load

    check_language(src_lang, "src_lang")
    check_language(tgt_lang, "tgt_lang")
    _check_needed({"train_tgt": train_tgt, "valid_tgt": valid_tgt, "tgt_vocab": tgt_vocab}, train_src, valid_src, vocab)
    if train_src is not None and valid_src is not None:
        raise UsageError("train_src and valid_src exclude each other", where="valid_src", help="check them one by one")
    other_src, other_tgt = as_path(train_src or valid_src), as_path(train_tgt or valid_tgt)
    vocabularies = None if vocab is None else (load(Path(vocab)), load(Path(tgt_vocab or vocab)))
    return examine_pair(
        Path(src),
        Path(tgt),
        validate(CheckConfig, dict(settings or {})),
        others=None if other_src is None else (other_src, other_tgt),
        vocabularies=vocabularies,
        expected=Expected(others="validation" if valid_src else "training", languages=(src_lang, tgt_lang)),
    )


def _check_needed(given: Mapping[str, object], *needed: object) -> None:
    """Raise ``UsageError`` for a target file that is given without its source."""
    for (name, value), source in zip(given.items(), needed, strict=True):
        if value is not None and source is None:
            other = name.replace("tgt_vocab", "vocab").replace("tgt", "src")
            raise UsageError(f"{name} needs {other}", where=name, help=f"give {other}, too")


@checked
def clean(
    src: str | Path,
    tgt: str | Path,
    output: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    test: Sequence[str | Path] = (),
    run: str | Path | None = None,
    src_lang: str | None = None,
    tgt_lang: str | None = None,
    processes: Count | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> CleanReport:
    """Write the pairs worth training on, and why others were dropped, to a folder.

    Calling it again resumes an interrupted cleaning, and returns the report of a finished one.

    Args:
        src: source text, one sentence per line.
        tgt: target text.
        output: folder to write.
        settings: filters and repairs, e.g. ``{"realign": True, "duplicates": "near"}``; see ``CleanConfig``.
        test: files of test sets; pairs that overlap them are dropped.
        run: run that scores pairs, for ``min_log_prob`` of ``settings``.
        src_lang: source language of an imported model with language codes.
        tgt_lang: target language of a run with several.
        processes: the result does not depend on it; None: one per core.
        overwrite: whether to replace an earlier result.
        quiet: whether to show no progress.

    Raises:
        DataError: no pair is left.
        UsageError: the folder holds something else, the settings changed, a run is given without ``min_log_prob``, or a
            language without a run.
    """
    from attnkit.quality.clean import clean as clean_files
    from attnkit.quality.clean_output import CleanRequest
    from attnkit.quality.config import CleanConfig
    from attnkit.tasks.translation.directions import LanguagePair, check_languages_used

    config = validate(CleanConfig, dict(settings or {}))
    if (run is None) != (config.min_log_prob is None):
        help = "give run=, and settings={'min_log_prob': -9.0}"
        raise UsageError("run and min_log_prob require each other", where="run", help=help)
    score, scored_by = None, ""
    if run is None:
        check_languages_used(LanguagePair(src_lang, tgt_lang), "run")
    else:
        from attnkit.tasks.translation.pair_scorer import open_pair_scorer

        score, scored_by = open_pair_scorer(Path(run), LanguagePair(src_lang, tgt_lang), warn)
    tests = tuple(map(Path, test))
    request = CleanRequest(Path(src), Path(tgt), Path(output), config, overwrite, scored_by, tests, processes)
    with call_progress(quiet) as status:

        def progress(n_lines: int) -> None:
            status.update(f"{n_lines:,} source lines done" if n_lines else "judging the alignment")

        return clean_files(request, score, progress)


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
    vocab: str | Path | None = None,
    tgt_vocab: str | Path | None = None,
    method: Method = "grow-diag-final-and",
    iterations: Count = 5,
    null_prob: float | None = None,
    min_prob: Annotated[float, 0] = 0.001,
    best: Count = 50,
    max_length: Count = 256,
    max_pairs: Count = 1 << 25,
    quiet: bool = False,
) -> WordAlignment:
    """Align the words of two files by IBM Model 1, as ``attnkit align`` does.

    Args:
        src: source text, one sentence per line.
        tgt: target text.
        output: lexicon file to write, tab-separated.
        run: run whose tokens are aligned instead of words.
        vocab: vocabulary file whose tokens are aligned instead of words.
        tgt_vocab: vocabulary of the target, if it has its own.
        method: direction or symmetrization heuristic.
        iterations: EM iterations.
        null_prob: probability that a target word has no source word; None: 1 / (source length + 1).
        min_prob: minimum probability of a translation in the lexicon.
        best: maximum number of translations per word of the lexicon.
        max_length: maximum words of a line; longer pairs are not aligned.
        max_pairs: maximum number of word pairs in memory, some 100 bytes each.
        quiet: whether to show no progress.

    Raises:
        DataError: line counts differ, or there is nothing to align.
    """
    from attnkit.tasks.word_alignment.lexicon import Aligner, AlignRequest

    options: dict[str, Any] = {"method": method, "iterations": iterations, "null_prob": null_prob, "best": best}
    options |= {"min_prob": min_prob, "max_length": max_length, "max_pairs": max_pairs}
    files = {"run": run, "vocab": vocab, "tgt_vocab": tgt_vocab}
    options |= {name: Path(path) for name, path in files.items() if path is not None}
    request = AlignRequest(Path(src), Path(tgt), **options)
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
    chrf_word_order: Annotated[int, 0] = 0,
    sentences: bool = False,
) -> MetricScore:
    """Score translations by BLEU, chrF or TER; texts are lists of lines, or files.

    ``chrf_word_order`` 2 is chrF++. With ``sentences``, the result has a score of each line, too.

    Raises:
        DataError: the texts do not have the same number of lines, or none.
    """
    from attnkit.metrics.bleu import build_metric, score_corpus, score_sentences

    hyps, *versions = (lines_of(text) for text in (hypotheses, references, *more_references))
    if not hyps:
        raise DataError("no translations to score", where="hypotheses", help="give lines, or a file that has some")
    for lines in versions:
        check_lengths("translations", "references", hyps, lines)
    options: dict[str, Any] = {"tokenize": tokenize, "lowercase": lowercase, "chrf_word_order": chrf_word_order}
    found = score_corpus(build_metric(metric, **options), hyps, versions)
    if not sentences:
        return found
    return replace(found, sentences=score_sentences(build_metric(metric, by_sentence=True, **options), hyps, versions))
