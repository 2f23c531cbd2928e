"""Lessons, the demo and licences behind calls. Torch-free until a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, get_args

from attnkit.config.arguments import Count, CountOrZero, checked
from attnkit.engine.events import Event
from attnkit.errors import UsageError
from attnkit.io.plain_data import PlainResult
from attnkit.library.training import follow_events
from attnkit.library.translations import Translation, as_translation
from attnkit.metrics.bleu import MetricScore
from attnkit.models.attention.patterns import PatternName
from attnkit.plotting.figures import PictureFormat
from attnkit.plotting.html import escape
from attnkit.plotting.lessons_terminal import MaskLesson, PoolingLesson, PositionsLesson
from attnkit.runtime.licenses import License, installed_licenses

if TYPE_CHECKING:
    from attnkit.demo import DemoResults

Contents = TypeVar("Contents", MaskLesson, PositionsLesson, PoolingLesson)


@dataclass(frozen=True, repr=False)
class Lesson(Generic[Contents]):
    """A lesson: numbers, tables and a picture; a notebook shows the tables."""

    contents: Contents  #: all numbers
    _text: Callable[[Contents, bool], str]
    _picture: Callable[[Contents, PictureFormat], bytes]

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"Lesson({type(self.contents).__name__})"

    def text(self, *, colour: bool = False) -> str:
        """Return the tables, 80 columns wide, as ``attnkit explain`` prints them."""
        return self._text(self.contents, colour)

    def picture(self, format: PictureFormat = "svg") -> bytes:
        """Return the picture as a file; needs ``attnkit[plot]``.

        Raises ``UsageError`` if that is not installed, or for another format.
        """
        if format not in get_args(PictureFormat):
            help = f"choose from {', '.join(get_args(PictureFormat))}"
            raise UsageError(f"unknown format '{format}'", where="format", help=help)
        return self._picture(self.contents, format)

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers as plain data, as ``attnkit explain --json`` does."""
        return self.contents.to_dict()

    def _repr_html_(self) -> str:
        """Return the tables for a notebook."""
        return f'<pre style="line-height:1.2">{escape(self.text())}</pre>'


MOST = {"size": 1024, "n_global": 1024, "shift": 1000, "seed": 1 << 31}
"""Largest values of arguments, as the command has them."""


def _check(**given: int) -> None:
    """Raise ``UsageError`` for a value that is too large."""
    for name, value in given.items():
        if value > MOST[name]:
            what = f"{name} is at most {MOST[name]:,}, not {value:,}"
            raise UsageError(what, where=name, help="choose a smaller one")


@checked
def explain_mask(
    words: str | None = None,
    *,
    pattern: PatternName | None = None,
    size: Count = 3,
    n_global: Count = 1,
    causal: bool = False,
) -> Lesson[MaskLesson]:
    """Explain the causal mask or, given a pattern, sparse attention.

    Args:
        words: example sentence of 2 to 20 words; None: one of ours, or unnamed positions of a pattern.
        pattern: sparse attention; None: dense and causal.
        size: window, stride or block size of the pattern.
        n_global: number of global positions of the pattern ``global``.
        causal: whether the pattern is causal.

    Raises:
        UsageError: a sentence of another length, a value that is too large, or one that needs a pattern.
    """
    _check(size=size, n_global=n_global)
    if pattern is None and (size != 3 or n_global != 1 or causal):
        help = "name one: pattern='window'"
        raise UsageError("size, n_global and causal require a pattern", where="attnkit.explain_mask", help=help)
    if n_global != 1 and pattern != "global":
        raise UsageError("n_global requires pattern='global'", where="attnkit.explain_mask", help="leave it out")
    from attnkit.analysis.explain import mask_lesson
    from attnkit.plotting.figures import mask_picture
    from attnkit.plotting.lessons_terminal import mask_text

    return Lesson(mask_lesson(words, pattern, size, n_global, causal), mask_text, mask_picture)


@checked
def explain_positions(words: str | None = None, *, shift: Count = 3, seed: CountOrZero = 1) -> Lesson[PositionsLesson]:
    """Explain sinusoidal positions: their table, shifts, and shuffled words.

    Args:
        words: example sentence of 2 to 20 words; None: one of ours.
        shift: number of positions between two encodings, one of which is a rotation of the other.
        seed: of the weights and of the order.

    Raises:
        UsageError: a sentence of another length, or a value that is too large.
    """
    _check(shift=shift, seed=seed)
    from attnkit.analysis.explain import positions_lesson
    from attnkit.plotting.figures import positions_picture
    from attnkit.plotting.lessons_terminal import positions_text

    return Lesson(positions_lesson(words, shift, seed), positions_text, positions_picture)


@checked
def explain_pooling(*, seed: CountOrZero = 1) -> Lesson[PoolingLesson]:
    """Explain attention as kernel regression of noisy points (Nadaraya, Watson).

    ``seed`` is that of the noise.
    """
    _check(seed=seed)
    from attnkit.analysis.explain import pooling_lesson
    from attnkit.plotting.figures import curves_picture
    from attnkit.plotting.lessons_terminal import pooling_text

    def picture(lesson: PoolingLesson, format: PictureFormat) -> bytes:
        title = "Kernel regression: y = 2 sin x + x^0.8 from noisy points"
        return curves_picture(lesson.curves, title, format)

    return Lesson(pooling_lesson(seed), pooling_text, picture)


@dataclass(frozen=True)
class Demo(PlainResult):
    """The run of a demo, with its scores and translations of unseen sentences."""

    run: Path
    n_test: int
    bleu: MetricScore  #: of the test sentences
    word_by_word: MetricScore  #: of translating word by word with the corpus's own lexicon
    examples: list[tuple[str, str, str]]
    """(source, reference, translation) of test sentences with pairs of words that never co-occur in training."""
    notes: list[Translation]  #: of the sentences of the lecture notes, with attention


@checked
def run_demo(
    output: str | Path = "demo-run",
    *,
    seed: CountOrZero = 1,
    quiet: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> Demo:
    """Train a small English-French model on a generated corpus; translate with it.

    It takes three minutes. Called again, it resumes.

    Args:
        output: folder of the corpus and the run.
        seed: of the corpus and of training.
        quiet: whether to show no progress.
        on_event: receives the events of training.

    Raises:
        UsageError: the folder has a demo of another seed.
    """
    from attnkit.demo import DemoResults as Results
    from attnkit.demo import demo as events

    found: list[DemoResults] = []

    def receive(event: Event | DemoResults) -> None:
        if isinstance(event, Results):
            found.append(event)
        elif on_event is not None:
            on_event(event)

    folder = Path(output)
    follow_events(lambda update: events(folder, seed, lambda: False, update), quiet, receive)
    (results,) = found
    notes = [as_translation(line, True) for line in results.notes]
    return Demo(folder / "run", results.n_test, results.bleu, results.word_by_word, results.examples, notes)


@checked
def licenses() -> list[License]:
    """Return the installed dependencies with versions and licences.

    Raises:
        SystemFailure: attnkit runs from a source tree that was never installed.
    """
    return installed_licenses()
