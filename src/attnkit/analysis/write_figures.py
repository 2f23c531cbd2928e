"""Attention as files: the page, and pictures for papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from attnkit.analysis.attention_request import MapSelection, pick
from attnkit.errors import UsageError
from attnkit.io import atomic
from attnkit.plotting.attention_maps import AttentionExample
from attnkit.plotting.figures import PictureFormat, attention_picture, missing_glyphs
from attnkit.plotting.html.attention import build_page

Paths = tuple[Path | None, Path | None, Path | None, Path | None]  #: suffixes of the page, the SVG, the PNG and the PDF


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
    html, *drawn = paths
    if any(drawn) and len(sentences) != 1:
        raise UsageError(f"a picture shows one line, not {len(sentences)}", help="--html takes any number")
    contents: list[tuple[Path, bytes]] = []
    if html is not None:
        contents.append((html, build_page(sentences, facts).encode("utf-8")))
    for path, format in zip(drawn, get_args(PictureFormat), strict=True):
        if path is not None:
            contents.append((path, _picture(sentences[0], shown, format, tell)))
    for path, content in contents:  # once all are made: what cannot be made leaves no file
        _write(path, content, tell)


def _picture(
    sentence: AttentionExample, shown: MapSelection, format: PictureFormat, tell: Callable[[str], None]
) -> bytes:
    heading = f"{sentence.source} → {sentence.target}" if sentence.target else sentence.source
    slices = pick(sentence, shown)
    if format != "svg":
        texts = [heading, *(token for one in slices for token in (*one.queries, *one.keys))]
        if missing := missing_glyphs(texts):
            some = f"{' '.join(missing[:5])}{' …' if len(missing) > 5 else ''}"
            tell(f"warning: no installed font has {some}; install one (pip install mplfonts), or write --svg")
    return attention_picture(slices, format, heading)


def _write(path: Path, content: bytes, tell: Callable[[str], None]) -> None:
    with atomic.open_output(path) as stream:
        stream.buffer.write(content)
    tell(f"written: {path}")
