"""Comparison of translators on test files: scores, significance, overlap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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

    baseline: str  #: first run
    system: str  #: run that is compared with it
    src: str  #: source file
    n_lines: int
    seen: SeenLines | None  #: in the training text of ``system``; None if its files are gone
    scores: list[Comparison]  #: BLEU and chrF of both
    groups: list[LineGroup] | None = None  #: scores by groups of lines, if asked for
    changed: list[ChangedLine] | None = None  #: lines that differ most, if asked for


def check_tests(src: Sequence[Path], tgt: Sequence[Path]) -> list[Files]:
    """Return the pairs of test files; raise ``UsageError`` for unequal numbers."""
    if not src or len(src) != len(tgt):
        what = f"{len(src)} source and {len(tgt)} target files"
        raise UsageError(f"{what}: give a --tgt for each --src", help="attnkit compare RUN RUN --src FILE --tgt FILE")
    return list(zip(src, tgt, strict=True))


def check_runs(runs: Sequence[Path]) -> None:
    """Raise ``UsageError`` unless there are two runs or more."""
    if len(runs) < 2:
        help = "attnkit compare RUN RUN --src FILE --tgt FILE; one run: attnkit translate, then attnkit score-bleu"
        raise UsageError("two runs are compared, or more", help=help)


def compare_translators(
    runs: Sequence[Path],
    tests: Sequence[Files],
    *,
    groups: bool = False,
    n_lines: int = 0,
    tgt_lang: str | None = None,
    threads: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[TestComparison]:
    """Yield the comparison of the first run with each other one, on each test file.

    Each run searches by its own settings. ``groups`` adds the scores of groups of lines, ``n_lines`` the lines that
    differ most. ``tgt_lang`` is the target language of runs with several; ``tell`` receives progress and notes. Raises
    ``RunError`` for an unusable run, ``DataError`` for an unusable file, ``UsageError`` for a language that no run has.
    """
    texts = [list(read_parallel(*files)) for files in tests]
    for files, pairs in zip(tests, texts, strict=True):
        if not pairs:
            raise DataError("the file is empty", where=str(files[0]))
    translators = [load_translator([run], threads=threads, notify=tell) for run in runs]
    several = [one for one in translators if len(one.runs[0].config.data.target_languages) > 1]
    for translator in several or translators[:1]:  # if neither has several, a language that is given is refused
        translator.set_target_language(tgt_lang)
    corpora = [_TrainingText(translator.runs[0].config) for translator in translators[1:]]
    for run, corpus in zip(runs[1:], corpora, strict=True):
        if corpus.paths is None:
            tell(f"the training files of {run} are gone: overlap with the test files is unknown")
    for files, pairs in zip(tests, texts, strict=True):
        src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
        tell(f"translating {files[0].name}")
        baseline = translators[0].translate(src)
        for run, translator, corpus in zip(runs[1:], translators[1:], corpora, strict=True):
            tell(f"comparing {files[0].name} with the training text")
            found = corpus.find_seen(src, tgt)
            tell(f"translating {files[0].name}")
            lines = TestLines(src, tgt, baseline, translator.translate(src))
            metrics = [build_metric("bleu"), build_metric("chrf")]
            seen_lines = None if found is None else found[0].tolist()
            yield TestComparison(
                str(runs[0]),
                str(run),
                str(files[0]),
                len(src),
                None if found is None else SeenLines(*map(len, found)),
                [paired_bootstrap(metric, baseline, lines.system, [tgt]) for metric in metrics],
                group_lines(lines, corpus.frequencies, seen_lines) if groups else None,
                most_changed(lines, n_lines) if n_lines else None,
            )


class _TrainingText:
    """Training text of a run, read if its files are still there."""

    def __init__(self, config: TranslationConfig) -> None:
        self.paths = training_text(config)

    @cached_property
    def frequencies(self) -> Counter[str] | None:
        """How often each word of the target occurs."""
        return None if self.paths is None else count_words(chain.from_iterable(map(read_lines, self.paths[1])))

    def find_seen(self, src: Sequence[str], tgt: Sequence[str]) -> list[NDArray[np.int64]] | None:
        """Return the numbers of the test sources and targets that occur in it."""
        if self.paths is None:
            return None
        sides = zip((src, tgt), self.paths, strict=True)
        return [find_seen(lines, chain.from_iterable(map(read_lines, paths))) for lines, paths in sides]


def training_text(config: TranslationConfig) -> tuple[list[Path], list[Path]] | None:
    """Return the training files of a run, sources and targets; None if any is gone."""
    pairs = config.data.training_pairs
    paths = [Path(pair.src) for pair in pairs], [Path(pair.tgt) for pair in pairs]
    return paths if all(path.is_file() for path in chain(*paths)) else None
