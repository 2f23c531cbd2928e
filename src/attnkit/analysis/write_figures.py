"""Attention as files: the page, and pictures for papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from attnkit.analysis.attention_request import MapSelection, pick
from attnkit.errors import DataError, UsageError
from attnkit.io import atomic
from attnkit.plotting.attention_maps import AttentionExample
from attnkit.plotting.figure import Figure, heat_maps, to_svg
from attnkit.plotting.html.attention.build import build_page
from attnkit.plotting.raster import MOST_PIXELS, SCALE, to_png, unknown_signs

Paths = tuple[Path | None, Path | None, Path | None]
"""Of the page, of the SVG, of the PNG."""


def write_files(
    sentences: Sequence[AttentionExample],
    facts: Mapping[str, str],
    shown: MapSelection,
    paths: Paths,
    tell: Callable[[str], None],
) -> None:
    """Write what is asked for; ``tell`` takes what was written, and what a picture cannot show.

    Raises:
        UsageError: a picture is wanted of several sentences, or of a choice that there is not.
    """
    html, svg, png = paths
    if (svg or png) and len(sentences) != 1:
        raise UsageError(f"a picture shows one line, not {len(sentences)}", help="--html takes any number")
    contents: list[tuple[Path, bytes]] = []
    if html is not None:
        contents.append((html, build_page(sentences, facts).encode("utf-8")))
    if svg is not None:
        contents.append((svg, to_svg(_figure(sentences[0], shown)).encode("utf-8")))
    if png is not None:
        contents.append((png, _pixels(_figure(sentences[0], shown), tell)))
    for path, content in contents:  # once all are made: what cannot be made leaves no file
        _write(path, content, tell)


def _figure(sentence: AttentionExample, shown: MapSelection) -> Figure:
    heading = f"{sentence.source} → {sentence.target}" if sentence.target else sentence.source
    return heat_maps(pick(sentence, shown), heading)


def _pixels(figure: Figure, tell: Callable[[str], None]) -> bytes:
    if figure.width * figure.height * SCALE**2 > MOST_PIXELS:
        raise DataError("the picture would be too large", help="choose one --layer and one --head, or write --svg")
    unknown = unknown_signs(figure)
    if unknown:
        signs = f"{' '.join(unknown[:5])}{' …' if len(unknown) > 5 else ''}"
        tell(
            f"warning: the PNG shows {len(unknown)} signs as boxes with their numbers ({signs}); --svg has all letters"
        )
    return to_png(figure)


def _write(path: Path, content: bytes, tell: Callable[[str], None]) -> None:
    with atomic.open_output(path) as stream:
        stream.buffer.write(content)
    tell(f"written: {path}")
