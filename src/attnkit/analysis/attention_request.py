"""Requests for attention weights of any model, and their output files. Torch-free."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import get_args

from attnkit.errors import DataError, UsageError
from attnkit.io import atomic
from attnkit.models.attention.config import ALIGNMENT_NAMES
from attnkit.plotting.attention_maps import AttentionExample, Choice, MapSlice, regroup, select_slices
from attnkit.plotting.figures import PictureFormat, attention_picture, missing_glyphs
from attnkit.plotting.html.attention import build_page
from attnkit.protocols import Unit
from attnkit.tasks.translation.directions import USUAL, LanguagePair
from attnkit.text.files import STDIN
from attnkit.text.lines import LineReader

MAX_WEIGHTS = 1 << 26  #: maximum number of weights in memory for a page or a figure, 256 MiB
Paths = tuple[Path | None, Path | None, Path | None, Path | None]  #: output paths of the HTML page, SVG, PNG and PDF


@dataclass(frozen=True)
class AttentionQuery:
    """Request of ``attnkit attend``."""

    run: Path
    sources: Iterable[str]
    targets: Sequence[str] = ()  #: one translation per source; empty: the model translates
    pairs: Sequence[str] = ()  #: one second text per source: of a pair, or the context of a question
    beam_size: int | None = None  #: beam size of the translation; None: the run's
    checkpoint: str | None = None
    device: str = "auto"
    languages: LanguagePair = USUAL  #: of a translator with several


@dataclass(frozen=True)
class MapSelection:
    """Selection of the attention maps to draw."""

    kind: str | None = None  #: None: cross-attention, or the model's first kind
    layer: Choice | None = None  #: None: the last layer
    head: Choice = "mean"
    every: bool = False  #: all kinds if ``kind`` is None
    unit: Unit | None = None  #: None: tokens in JSON, elsewhere tokens with those that share a character as one
    special: bool = True  #: whether special tokens are shown


@dataclass(frozen=True)
class AttentionReport:
    """Attention weights of the requested sentences."""

    facts: dict[str, str]  #: description of the model and of the maps
    sentences: Iterator[AttentionExample]  #: computed lazily
    warnings: tuple[str, ...] = ()
    afterwards: Callable[[], Sequence[str]] = tuple  #: returns the warnings after the last sentence


def source_lines(texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines of command-line texts; ``-`` reads standard input."""
    for text in texts:
        if text == "-":
            yield from LineReader(STDIN, on_bad="replace")
        else:
            # Command-line arguments need not be valid UTF-8.
            whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            yield from whole.removesuffix("\n").split("\n")


def pair_lines(query: AttentionQuery) -> Iterator[tuple[int, str, str | None]]:
    """Yield (number, source, second) per line: its target or second text, if given."""
    flag, given = ("--pair", query.pairs) if query.pairs else ("--target", query.targets)
    targets = [next(source_lines([target]), "") for target in given]
    sources, number = query.sources, 0
    if targets:
        sources = list(islice(sources, len(targets) + 1))
        if len(sources) != len(targets):
            others = "more" if len(sources) > len(targets) else str(len(sources))
            noun = flag.removeprefix("--")
            what = f"{len(targets)} {noun}s for {others} source lines"
            raise UsageError(what, where=flag, help=f"give one {noun} per line")
    for number, source in enumerate(sources, 1):
        yield number, source, targets[number - 1] if targets else None
    if not number:
        raise UsageError("no text given", help='attnkit attend RUN "a sentence", or - to read lines')


def by_unit(sentence: AttentionExample, shown: MapSelection) -> AttentionExample:
    """Return an example with its maps by the selected unit, for JSON."""
    return replace(sentence, maps=[regroup(map, shown.unit or "token", shown.special) for map in sentence.maps])


def check_alignments(names: Sequence[str]) -> None:
    """Raise ``UsageError`` for an unknown alignment function."""
    for name in names:
        if name not in ALIGNMENT_NAMES:
            close = difflib.get_close_matches(name, ALIGNMENT_NAMES, n=1)
            help = f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(ALIGNMENT_NAMES)}"
            raise UsageError(f"unknown alignment function '{name[:40]}'", where="--alignment", help=help)


def parse_selection(kind: str | None, layer: str | None, head: str) -> MapSelection:
    """Parse the options --kind, --layer and --head.

    Layer and head are numbers from 1, mean, max or all. Raises ``UsageError`` for any other value.
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
    """Return the maps to draw; raise ``UsageError`` if the selection does not exist."""
    kinds = [map.kind for map in sentence.maps]
    if shown.kind is not None and shown.kind not in kinds:
        raise UsageError(f"unknown kind '{shown.kind[:40]}'", where="--kind", help=f"choose one of {', '.join(kinds)}")
    chosen = [map for map in sentence.maps if shown.kind in (None, map.kind)]
    slices: list[MapSlice] = []
    for map in chosen if shown.every else chosen[:1]:
        map = regroup(map, shown.unit or "character", shown.special)
        layer = map.last_layer if shown.layer is None else shown.layer
        slices += select_slices(map, layer, shown.head)
    return slices


def checked(sentences: Iterable[AttentionExample], shown: MapSelection) -> Iterator[AttentionExample]:
    """Yield the sentences; raise ``UsageError`` if the first lacks the selected maps."""
    for number, sentence in enumerate(sentences):
        if not number:
            pick(sentence, shown)  # validates the selection even if nothing is drawn
        yield sentence


def gather(sentences: Iterable[AttentionExample]) -> list[AttentionExample]:
    """Return all sentences; raise ``DataError`` if they exceed ``MAX_WEIGHTS``."""
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
    """Write page and figures; raise ``UsageError`` for a figure of several sentences."""
    html, *drawn = paths
    if any(drawn) and len(sentences) != 1:
        raise UsageError(f"a figure shows one line, not {len(sentences)}", help="use --html for several lines")
    contents: list[tuple[Path, bytes]] = []
    if html is not None:
        contents.append((html, build_page(sentences, facts, shown.unit or "character", shown.special).encode("utf-8")))
    for path, format in zip(drawn, get_args(PictureFormat), strict=True):
        if path is None:
            continue
        (sentence,) = sentences
        heading = f"{sentence.source} → {sentence.target}" if sentence.target else sentence.source
        slices = pick(sentence, shown)
        texts = [heading, *(token for one in slices for token in (*one.queries, *one.keys))]
        if format != "svg" and (missing := missing_glyphs(texts)):
            some = f"{' '.join(missing[:5])}{' …' if len(missing) > 5 else ''}"
            tell(f"warning: no installed font has {some}; install one (pip install mplfonts), or use --svg")
        contents.append((path, attention_picture(slices, format, heading)))
    for path, content in contents:  # after all are rendered: a failure leaves no files
        with atomic.open_output(path) as stream:
            stream.buffer.write(content)
        tell(f"written: {path}")
