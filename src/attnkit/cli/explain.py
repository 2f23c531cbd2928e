"""``attnkit explain``: lessons about attention, drawn from the functions that models compute with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from typer import Argument, Option

from attnkit.cli import console
from attnkit.cli.options import Json, Pdf, Png, Svg
from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.models.attention.patterns import PatternName

Topic = Literal["mask", "positions", "pooling"]
OPTIONS: dict[str, tuple[Topic, ...]] = {
    "--words": ("mask", "positions"),
    "--pattern": ("mask",),
    "--size": ("mask",),
    "--global": ("mask",),
    "--causal": ("mask",),
    "--shift": ("positions",),
    "--seed": ("positions", "pooling"),
}
"""Option -> the topics that have it."""


def command(
    topic: Annotated[Topic, Argument(help="Lesson.")],
    words: Annotated[str | None, Option(help="Sentence to explain on.", metavar="TEXT")] = None,
    pattern: Annotated[PatternName | None, Option(help="Sparse pattern of the lesson mask.")] = None,
    size: Annotated[int | None, Option(min=1, max=1024, help="Size of the pattern. [default: 3]")] = None,
    n_global: Annotated[
        int | None, Option("--global", min=1, max=1024, help="Global positions of the pattern. [default: 1]")
    ] = None,
    causal: Annotated[bool, Option("--causal", help="Causal pattern.")] = False,
    shift: Annotated[int | None, Option(min=1, max=1000, help="Shift of the lesson positions. [default: 3]")] = None,
    seed: Annotated[int | None, Option(min=0, max=2**31, help="Random seed of noise and weights. [default: 1]")] = None,
    svg: Svg = None,
    png: Png = None,
    pdf: Pdf = None,
    json: Json = False,
) -> None:
    """Explain attention by pictures: its causal mask and sparse patterns, positions, kernel regression.

    \b
    Examples:
      attnkit explain mask --words "a dog runs home"
      attnkit explain mask --pattern global --size 2
      attnkit explain positions --shift 5
      attnkit explain pooling --svg curve.svg
    """
    given = (words, pattern, size, n_global, causal or None, shift, seed)
    refuse_foreign(topic, dict(zip(OPTIONS, given, strict=True)))
    if pattern is None and (size or n_global or causal):
        raise UsageError(
            "--size, --global and --causal say what a sparse pattern is", help="choose one: --pattern window"
        )
    if n_global and pattern != "global":
        raise UsageError("--global belongs to one pattern alone", help="--pattern global")
    numbers, text, draw = lesson(topic, words, (pattern, size or 3, n_global or 1, causal), (shift or 3, seed))
    for path, content in [(path, draw(format)) for path, format in ((svg, "svg"), (png, "png"), (pdf, "pdf")) if path]:
        with atomic.open_output(path) as stream:
            stream.buffer.write(content)
    console.result(text if not json else numbers)


def refuse_foreign(topic: Topic, given: dict[str, Any]) -> None:
    """Raise a UsageError for an option that the topic does not have."""
    for option, value in given.items():
        if value is not None and topic not in OPTIONS[option]:
            raise UsageError(
                f"'explain {topic}' has no {option}", help=f"it belongs to {' and '.join(OPTIONS[option])}"
            )


def lesson(
    topic: Topic, words: str | None, pattern: tuple[PatternName | None, int, int, bool], other: tuple[int, int | None]
) -> tuple[str, str, Callable[[Any], bytes]]:
    """Return a lesson as JSON, as text for the terminal, and what draws it in a picture format."""
    from dataclasses import asdict
    from json import dumps

    from attnkit.analysis import explain
    from attnkit.plotting import figures
    from attnkit.plotting import lessons_terminal as blackboard

    colour, shift, seed = console.supports_color(), other[0], 1 if other[1] is None else other[1]
    if topic == "mask":
        mask = explain.mask_lesson(words, *pattern)
        return dumps(asdict(mask)), blackboard.mask_text(mask, colour), partial(figures.mask_picture, mask)
    if topic == "positions":
        positions = explain.positions_lesson(words, shift, seed)
        return (
            dumps(asdict(positions)),
            blackboard.positions_text(positions, colour),
            partial(figures.positions_picture, positions),
        )
    pooling = explain.pooling_lesson(seed)
    title = "Kernel regression: y = 2 sin x + x^0.8 from noisy points"
    return (
        dumps(asdict(pooling)),
        blackboard.pooling_text(pooling, colour),
        partial(figures.curves_picture, pooling.curves, title),
    )
