"""Comparison of two translators on test files: scores, significance, overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from attnkit.analysis.line_groups import ChangedLine, LineGroup, TestLines, count_words, group_lines, most_changed
from attnkit.errors import DataError, UsageError
from attnkit.metrics.bleu import Comparison, build_metric, paired_bootstrap
from attnkit.quality.overlap import find_seen
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.translator import load_translator
from attnkit.text.lines import read_lines
from attnkit.text.parallel import read_parallel

Files = tuple[Path, Path]  #: source and target


@dataclass(frozen=True)
class SeenLines:
    """Lines of a test file that share 80 % of their n-grams with a training line."""

    source: int
    target: int


@dataclass(frozen=True)
class TestComparison:
    """Scores of two translators on a test file."""

    __test__ = False  # not a class of tests

    src: str  #: source file
    n_lines: int
    seen: SeenLines | None  #: in the training text of the second run; None if its files are gone
    scores: list[Comparison]  #: BLEU and chrF: "baseline" is the first run, "system" the second
    groups: list[LineGroup] | None = None  #: scores by groups of lines, if asked for
    changed: list[ChangedLine] | None = None  #: lines that differ most, if asked for


def check_tests(src: Sequence[Path], tgt: Sequence[Path]) -> list[Files]:
    """Return the pairs of test files; raise ``UsageError`` for unequal numbers."""
    if not src or len(src) != len(tgt):
        what = f"{len(src)} source and {len(tgt)} target files"
        raise UsageError(f"{what}: give a --tgt for each --src", help="attnkit compare RUN RUN --src FILE --tgt FILE")
    return list(zip(src, tgt, strict=True))


def compare_translators(
    before: Path,
    after: Path,
    tests: Sequence[Files],
    *,
    groups: bool = False,
    n_lines: int = 0,
    tgt_lang: str | None = None,
    threads: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[TestComparison]:
    """Yield the comparison on each test file, by the search settings of each run.

    ``groups`` adds the scores of groups of lines, ``n_lines`` the lines that differ most. ``tgt_lang`` is the target
    language of runs with several; ``tell`` receives progress and notes. Raises ``RunError`` for an unusable run,
    ``DataError`` for an unusable file, ``UsageError`` for a language that no run has.
    """
    texts = [list(read_parallel(*files)) for files in tests]
    for files, pairs in zip(tests, texts, strict=True):
        if not pairs:
            raise DataError("the file is empty", where=str(files[0]))
    translators = [load_translator([run], threads=threads, notify=tell) for run in (before, after)]
    several = [one for one in translators if len(one.runs[0].config.data.target_languages) > 1]
    for translator in several or translators[:1]:  # if neither has several, a language that is given is refused
        translator.set_target_language(tgt_lang)
    training = training_text(translators[1].runs[0].config)
    if training is None:
        tell(f"the training files of {after} are gone: overlap with the test files is unknown")
    frequencies = None
    if groups and training is not None:
        frequencies = count_words(chain.from_iterable(read_lines(path) for path in training[1]))
    for files, pairs in zip(tests, texts, strict=True):
        src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
        seen, found = None, None
        if training is not None:
            tell(f"comparing {files[0].name} with the training text")
            found = [
                find_seen(lines, chain.from_iterable(read_lines(path) for path in paths))
                for lines, paths in zip((src, tgt), training, strict=True)
            ]
            seen = SeenLines(*map(len, found))
        tell(f"translating {files[0].name}")
        baseline, system = (translator.translate(src) for translator in translators)
        metrics = [build_metric("bleu"), build_metric("chrf")]
        scores = [paired_bootstrap(metric, baseline, system, [tgt]) for metric in metrics]
        lines = TestLines(src, tgt, baseline, system)
        yield TestComparison(
            str(files[0]),
            len(src),
            seen,
            scores,
            group_lines(lines, frequencies, None if found is None else found[0].tolist()) if groups else None,
            most_changed(lines, n_lines) if n_lines else None,
        )


def training_text(config: TranslationConfig) -> tuple[list[Path], list[Path]] | None:
    """Return the training files of a run, sources and targets; None if any is gone."""
    pairs = config.data.training_pairs
    paths = [Path(pair.src) for pair in pairs], [Path(pair.tgt) for pair in pairs]
    return paths if all(path.is_file() for path in chain(*paths)) else None
