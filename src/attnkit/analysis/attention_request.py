"""Requests for attention weights of any model, and their output files. Torch-free."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import get_args

from attnkit.errors import DataError, UsageError
from attnkit.io import atomic
from attnkit.plotting.attention_maps import AttentionExample, Choice, MapSlice, select_slices
from attnkit.plotting.figures import PictureFormat, attention_picture, missing_glyphs
from attnkit.plotting.html.attention import build_page
from attnkit.text.lines import STDIN, LineReader

MAX_WEIGHTS = 1 << 26  #: weights held at once for a page or a picture: a quarter of a gigabyte
Paths = tuple[Path | None, Path | None, Path | None, Path | None]  #: output paths of the HTML page, SVG, PNG and PDF


@dataclass(frozen=True)
class AttentionQuery:
    """Request of ``attnkit attend``."""

    run: Path
    sources: Iterable[str]
    targets: Sequence[str] = ()  #: one translation per source; empty: the model translates
    beam_size: int | None = None  #: beam size of the translation; None: the run's
    checkpoint: str | None = None
    device: str = "auto"


@dataclass(frozen=True)
class MapSelection:
    """Which of the maps a picture shows."""

    kind: str | None = None  #: None: cross-attention, or the model's first kind
    layer: Choice | None = None  #: None: the last layer
    head: Choice = "mean"
    every: bool = False  #: all kinds if none is named


@dataclass(frozen=True)
class AttentionReport:
    """Attention weights of the requested sentences."""

    facts: dict[str, str]  #: description of the model and of the maps
    sentences: Iterator[AttentionExample]  #: computed lazily
    warnings: tuple[str, ...] = ()
    afterwards: Callable[[], Sequence[str]] = tuple  #: warnings after the last sentence


def source_lines(texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines of texts from a command line; ``-`` reads standard input."""
    for text in texts:
        if text == "-":
            yield from LineReader(STDIN, on_bad="replace")
        else:
            # What a shell hands over need not be UTF-8.
            whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            yield from whole.removesuffix("\n").split("\n")


def pair_lines(query: AttentionQuery) -> Iterator[tuple[int, str, str | None]]:
    """Yield number, source and target of each line; the target is None where the model is to translate."""
    targets = [next(source_lines([target]), "") for target in query.targets]
    sources, number = query.sources, 0
    if targets:
        sources = list(islice(sources, len(targets) + 1))
        if len(sources) != len(targets):
            others = "more" if len(sources) > len(targets) else str(len(sources))
            what = f"{len(targets)} targets for {others} source lines"
            raise UsageError(what, where="--target", help="give one target per line")
    for number, source in enumerate(sources, 1):
        yield number, source, targets[number - 1] if targets else None
    if not number:
        raise UsageError("no text given", help='attnkit attend RUN "a sentence", or - to read lines')


def parse_selection(kind: str | None, layer: str | None, head: str) -> MapSelection:
    """Parse the flags that select kind, layer and head. A layer or head is a number from 1, mean, max or all.

    Raises ``UsageError`` for anything else.
    """

    def choice(flag: str, text: str) -> Choice:
        match text:
            case "mean" | "max" | "all":
                return text
            case _ if text.isascii() and text.isdigit() and len(text) < 6 and int(text) > 0:
                return int(text)
        raise UsageError(f"'{text[:40]}' is not a layer or head", where=flag, help="give a number, mean, max or all")

    return MapSelection(kind, None if layer is None else choice("--layer", layer), choice("--head", head))


def pick(sentence: AttentionExample, shown: MapSelection) -> list[MapSlice]:
    """Return the maps to draw. Raises ``UsageError`` for an unknown kind, layer or head."""
    kinds = [map.kind for map in sentence.maps]
    if shown.kind is not None and shown.kind not in kinds:
        raise UsageError(f"unknown kind '{shown.kind[:40]}'", where="--kind", help=f"choose one of {', '.join(kinds)}")
    chosen = [map for map in sentence.maps if shown.kind in (None, map.kind)]
    slices: list[MapSlice] = []
    for map in chosen if shown.every else chosen[:1]:
        layer = map.last_layer if shown.layer is None else shown.layer
        slices += select_slices(map, layer, shown.head)
    return slices


def checked(sentences: Iterable[AttentionExample], shown: MapSelection) -> Iterator[AttentionExample]:
    """Yield the sentences; raise ``UsageError`` at the first if it lacks the kind, layer or head, drawn or not."""
    for number, sentence in enumerate(sentences):
        if not number:
            pick(sentence, shown)
        yield sentence


def gather(sentences: Iterable[AttentionExample]) -> list[AttentionExample]:
    """Return all sentences at once. Raises ``DataError`` where they are too many to be held together."""
    held: list[AttentionExample] = []
    n_weights = 0
    for sentence in sentences:
        held.append(sentence)
        n_weights += sum(map.weights.size for map in sentence.maps)
        if n_weights > MAX_WEIGHTS:
            what = f"{len(held):,} lines have more than {MAX_WEIGHTS:,} weights, too many for one file"
            raise DataError(what, help="give fewer or shorter lines")
    return held


def write_files(
    sentences: Sequence[AttentionExample],
    facts: Mapping[str, str],
    shown: MapSelection,
    paths: Paths,
    tell: Callable[[str], None],
) -> None:
    """Write page and pictures; ``tell`` takes messages. Raises ``UsageError`` for a picture of several sentences."""
    html, *drawn = paths
    if any(drawn) and len(sentences) != 1:
        raise UsageError(f"a figure shows one line, not {len(sentences)}", help="use --html for several lines")
    contents: list[tuple[Path, bytes]] = []
    if html is not None:
        contents.append((html, build_page(sentences, facts).encode("utf-8")))
    for path, format in zip(drawn, get_args(PictureFormat), strict=True):
        if path is None:
            continue
        (sentence,) = sentences
        heading = f"{sentence.source} → {sentence.target}" if sentence.target else sentence.source
        slices = pick(sentence, shown)
        texts = [heading, *(token for one in slices for token in (*one.queries, *one.keys))]
        if format != "svg" and (missing := missing_glyphs(texts)):
            some = f"{' '.join(missing[:5])}{' …' if len(missing) > 5 else ''}"
            tell(f"warning: no installed font has {some}; install one (pip install mplfonts), or write --svg")
        contents.append((path, attention_picture(slices, format, heading)))
    for path, content in contents:  # once all are made: what cannot be made leaves no file
        with atomic.open_output(path) as stream:
            stream.buffer.write(content)
        tell(f"written: {path}")
