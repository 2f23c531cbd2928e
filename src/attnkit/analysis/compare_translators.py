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
from attnkit.io.plain_data import PlainResult
from attnkit.metrics.bleu import PAIRED_TESTS, Comparison, PairedTestName, build_metric
from attnkit.quality.overlap import find_seen
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.tasks.translation.directions import USUAL, LanguagePair, check_languages_used, languages_of_each
from attnkit.tasks.translation.translator import TranslationPipeline, load_translator
from attnkit.text.files import STDIN
from attnkit.text.lines import read_lines
from attnkit.text.parallel import mismatch, read_parallel

Files = tuple[Path | None, Path]  #: source, None if only translations are compared, and target
_EXAMPLE = "attnkit compare RUN RUN --src FILE --tgt FILE, or attnkit compare HYP HYP --tgt FILE"


@dataclass(frozen=True)
class SeenLines:
    """Lines of a test file that share 80 % of their n-grams with a training line."""

    source: int
    target: int


@dataclass(frozen=True)
class TestComparison(PlainResult):
    """Scores of two translators on a test file."""

    __test__ = False  # not a class of tests

    baseline: str  #: first run, or file of translations
    system: str  #: run or file of translations that is compared with it
    src: str | None  #: source file; None if only translations are compared
    tgt: str  #: target file
    n_lines: int
    seen: SeenLines | None  #: in the training text of ``system``; None if its files are gone, or it is not a run
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


def check_systems(systems: Sequence[Path], src: Sequence[Path], tgt: Sequence[Path]) -> list[Files]:
    """Return the test files of runs, or of files of translations.

    Raises:
        UsageError: there are fewer than two systems; a file is missing, or is one too many.
    """
    check_runs(systems)
    runs = [path for path in systems if not is_translation_file(path)]
    if len(runs) == len(systems):
        return check_tests(src, tgt)
    if len(tgt) != 1 or len(src) > 1:
        what = f"files of translations are compared on one test file, not {len(tgt)} --tgt and {len(src)} --src"
        raise UsageError(what, help=_EXAMPLE)
    if runs and not src:
        raise UsageError("a run needs the source of the test", where=str(runs[0]), help="add --src FILE")
    if [*systems, *src, *tgt].count(STDIN) > 1:
        raise UsageError("standard input can be only one of the files", help=_EXAMPLE)
    return [(src[0] if src else None, tgt[0])]


def is_translation_file(path: Path) -> bool:
    """Return whether a system is a file of translations, or standard input."""
    return path == STDIN or (path.exists() and not path.is_dir())


def compare_translators(
    systems: Sequence[Path],
    tests: Sequence[Files],
    *,
    test: PairedTestName = "bootstrap",
    groups: bool = False,
    n_lines: int = 0,
    languages: LanguagePair = USUAL,
    threads: int | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Iterator[TestComparison]:
    """Yield the comparison of the first system with each other one, on each test file.

    A system is a run, which searches by its own settings, or a file of translations of the only test. ``test`` is the
    paired test. ``groups`` adds the scores of groups of lines, ``n_lines`` the lines that differ most. ``languages``
    are those of runs with several; ``tell`` receives progress and notes. Raises ``RunError`` for an unusable
    run, ``DataError`` for an unusable file, ``UsageError`` for a language that no run has.
    """
    texts = [_read_test(*files) for files in tests]
    baseline, *others = _load_systems(systems, languages, threads, tell)
    for one in others:
        if one.translator is not None and one.training is None:
            tell(f"the training files of {one.path} are gone: overlap with the test files is unknown")
    compare = PAIRED_TESTS[test]
    for (src_path, tgt_path), (src, tgt) in zip(tests, texts, strict=True):
        name = (src_path or tgt_path).name
        tell(f"translating {name}")
        before = baseline.translate(src, tgt, tgt_path)
        for one in others:
            found = None
            if one.training is not None and src is not None:
                tell(f"comparing {name} with the training text")
                found = one.training.find_seen(src, tgt)
            tell(f"translating {name}")
            lines = TestLines(src, tgt, before, one.translate(src, tgt, tgt_path))
            metrics = [build_metric("bleu"), build_metric("chrf")]
            frequencies = one.training.frequencies if groups and one.training is not None else None
            yield TestComparison(
                str(baseline.path),
                str(one.path),
                None if src_path is None else str(src_path),
                str(tgt_path),
                len(tgt),
                None if found is None else SeenLines(*map(len, found)),
                [compare(metric, before, lines.system, [tgt]) for metric in metrics],
                group_lines(lines, frequencies, None if found is None else found[0].tolist()) if groups else None,
                most_changed(lines, n_lines) if n_lines else None,
            )


def _read_test(src: Path | None, tgt: Path) -> tuple[list[str] | None, list[str]]:
    """Return the lines of source and target; raise ``DataError`` if there are none."""
    pairs = [] if src is None else list(read_parallel(src, tgt))
    targets = list(read_lines(tgt)) if src is None else [pair[1] for pair in pairs]
    if not targets:
        raise DataError("the file is empty", where=str(src or tgt))
    return None if src is None else [pair[0] for pair in pairs], targets


@dataclass(frozen=True)
class _System:
    """A run that translates, or a file of translations."""

    path: Path
    translator: TranslationPipeline | None  #: None for a file
    training: _TrainingText | None  #: None for a file, or if the files of the training text are gone

    def translate(self, src: list[str] | None, tgt: list[str], tgt_path: Path) -> list[str]:
        if self.translator is not None and src is not None:
            return self.translator.translate(src)
        lines = list(read_lines(self.path))
        if len(lines) != len(tgt):
            raise mismatch(self.path, tgt_path, len(lines), len(tgt))
        return lines


def _load_systems(
    systems: Sequence[Path], languages: LanguagePair, threads: int | None, tell: Callable[[str], None]
) -> list[_System]:
    """Return the systems; runs are loaded."""
    found = []
    for path in systems:
        if is_translation_file(path):
            found.append(_System(path, None, None))
            continue
        translator = load_translator([path], threads=threads, notify=tell)
        files = training_text(translator.runs[0].config)
        found.append(_System(path, translator, None if files is None else _TrainingText(files)))
    translators = [one.translator for one in found if one.translator is not None]
    if not translators:
        check_languages_used(languages, "a run")
    of_each = languages_of_each([one.runs[0] for one in translators], languages)
    for translator, own in zip(translators, of_each, strict=True):
        translator.set_languages(own)
    return found


class _TrainingText:
    """Training text of a run: files of the sources and of the targets."""

    def __init__(self, paths: tuple[list[Path], list[Path]]) -> None:
        self.paths = paths

    @cached_property
    def frequencies(self) -> Counter[str]:
        """How often each word of the target occurs."""
        return count_words(chain.from_iterable(map(read_lines, self.paths[1])))

    def find_seen(self, src: Sequence[str], tgt: Sequence[str]) -> list[NDArray[np.int64]]:
        """Return the numbers of the test sources and targets that occur in it."""
        sides = zip((src, tgt), self.paths, strict=True)
        return [find_seen(lines, chain.from_iterable(map(read_lines, paths))) for lines, paths in sides]


def training_text(config: TranslationConfig) -> tuple[list[Path], list[Path]] | None:
    """Return the training files of a run, sources and targets; None if any is gone."""
    pairs = config.data.training_pairs
    paths = [Path(pair.src) for pair in pairs], [Path(pair.tgt) for pair in pairs]
    return paths if all(path.is_file() for path in chain(*paths)) else None
