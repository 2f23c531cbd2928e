"""``attnkit explain``: lessons about attention, computed by the models' functions."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from attnkit.cli.options import Json, Pdf, Png, Svg
from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.models.attention.patterns import PatternName
from attnkit.progress import console

if TYPE_CHECKING:
    from attnkit.library.lessons import Lesson
    from attnkit.plotting.figures import PictureFormat

Topic = Literal["mask", "positions", "pooling"]
OPTIONS: dict[str, tuple[Topic, ...]] = {
    "words": ("mask", "positions"),
    **dict.fromkeys(("pattern", "size", "global", "causal"), ("mask",)),
    "shift": ("positions",),
    "seed": ("positions", "pooling"),
}
"""Option -> topics that accept it."""


def command(
    topic: Annotated[Topic, Argument(help="Lesson.")],
    words: Annotated[str | None, Option(help="Example sentence.", metavar="TEXT")] = None,
    pattern: Annotated[PatternName | None, Option(help="Sparse attention pattern (topic mask).")] = None,
    size: Annotated[int | None, Option(min=1, max=1024, help="Window, stride or block size. [default: 3]")] = None,
    n_global: Annotated[int | None, Option("--global", min=1, max=1024, help="Global positions. [default: 1]")] = None,
    causal: Annotated[bool, Option(help="Causal pattern.")] = False,
    shift: Annotated[int | None, Option(min=1, max=1000, help="Position shift (topic positions). [default: 3]")] = None,
    seed: Annotated[int | None, Option(min=0, max=2**31, help="Random seed of noise and weights. [default: 1]")] = None,
    svg: Svg = None,
    png: Png = None,
    pdf: Pdf = None,
    json: Json = False,
) -> None:
    """Illustrate causal masks, sparse attention, positions and kernel regression.

    \b
    Examples:
      attnkit explain mask --words "a dog runs home"
      attnkit explain mask --pattern global --size 2
      attnkit explain positions --shift 5
      attnkit explain pooling --svg curve.svg
    """
    given = {"words": words, "pattern": pattern, "size": size, "global": n_global, "causal": causal or None}
    for name, value in {**given, "shift": shift, "seed": seed}.items():
        if value is not None and topic not in OPTIONS[name]:
            raise UsageError(f"--{name} cannot be used with {topic}", help=f"use it with {' or '.join(OPTIONS[name])}")
    if pattern is None and (size or n_global or causal):
        raise UsageError("--size, --global and --causal require --pattern", help="choose one: --pattern window")
    if n_global and pattern != "global":
        raise UsageError("--global requires --pattern global", help="--pattern global")
    from attnkit.library.lessons import explain_mask, explain_pooling, explain_positions

    seed = 1 if seed is None else seed
    if topic == "mask":
        lesson: Lesson[Any] = explain_mask(
            words, pattern=pattern, size=size or 3, n_global=n_global or 1, causal=causal
        )
    elif topic == "positions":
        lesson = explain_positions(words, shift=shift or 3, seed=seed)
    else:
        lesson = explain_pooling(seed=seed)
    # Render all pictures before writing the first one.
    pictures: list[tuple[Path | None, PictureFormat]] = [(svg, "svg"), (png, "png"), (pdf, "pdf")]
    for path, content in [(path, lesson.picture(format)) for path, format in pictures if path]:
        with atomic.open_output(path) as stream:
            stream.buffer.write(content)
    console.result(dumps(lesson.to_dict()) if json else lesson.text(colour=console.supports_color()))
