"""What can be asked about where a model looks, and what is answered, whatever kind of model it is. Knows no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from attnkit.errors import DataError, UsageError
from attnkit.plotting.attention_maps import AttentionExample, AttentionMap, Choice, MapSlice, pictures
from attnkit.text.lines import STDIN, LineReader

MOST_WEIGHTS = 1 << 26
"""Of all sentences that are held together, for a page or a picture: a quarter of a gigabyte."""


@dataclass(frozen=True)
class AttentionQuery:
    """What ``attnkit attend`` is asked to look at."""

    run: Path
    sources: Iterable[str]
    targets: Sequence[str] = ()
    """A translation for each source; empty where the model is to translate."""
    beam_size: int | None = None
    """Of translating; None: the run's."""
    checkpoint: str | None = None
    device: str = "auto"


@dataclass(frozen=True)
class MapSelection:
    """Which of the maps a picture shows."""

    kind: str | None = None
    """None: attention to the source where there is any, else the first kind there is."""
    layer: Choice | None = None
    """None: the last."""
    head: Choice = "mean"
    every: bool = False
    """All kinds, where none is named."""


@dataclass(frozen=True)
class AttentionReport:
    """What there is to see."""

    facts: dict[str, str]
    """What made the maps, in words."""
    sentences: Iterator[AttentionExample]
    """Each is looked at as it is asked for."""
    warnings: tuple[str, ...] = ()
    afterwards: Callable[[], Sequence[str]] = tuple
    """Warnings that are known once every sentence was looked at."""


def source_lines(texts: Sequence[str]) -> Iterator[str]:
    """Yield the lines of texts from a command line; ``-`` reads standard input."""
    for text in texts:
        if text == "-":
            yield from LineReader(STDIN, on_bad="replace")
        else:
            # What a shell hands over need not be UTF-8.
            whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            yield from whole.removesuffix("\n").split("\n")


def pair_lines(question: AttentionQuery) -> Iterator[tuple[int, str, str | None]]:
    """Yield number, source and target of each line; the target is None where the model is to translate."""
    given = [next(source_lines([target]), "") for target in question.targets]
    sources, number = question.sources, 0
    if given:
        sources = list(islice(sources, len(given) + 1))
        if len(sources) != len(given):
            others = "more" if len(sources) > len(given) else str(len(sources))
            raise UsageError(f"there are {len(given)} targets for {others} lines", where="--target")
    for number, source in enumerate(sources, 1):
        yield number, source, given[number - 1] if given else None
    if not number:
        raise UsageError("no text to look at", help='attnkit attend RUN "a sentence", or - to read lines')


def parse_selection(kind: str | None, layer: str | None, head: str) -> MapSelection:
    """Return what flags choose. Raises ``UsageError`` for what is neither a number from 1 nor mean, max or all."""
    return MapSelection(kind, None if layer is None else _choice(layer, "--layer"), _choice(head, "--head"))


def _choice(text: str, flag: str) -> Choice:
    named: dict[str, Choice] = {"mean": "mean", "max": "max", "all": "all"}
    if text in named:
        return named[text]
    if text.isascii() and text.isdigit() and len(text) < 6 and int(text) > 0:
        return int(text)
    raise UsageError(f"'{text[:40]}' is not a choice", where=flag, help="give a number from 1, mean, max or all")


def pick(sentence: AttentionExample, shown: MapSelection) -> list[MapSlice]:
    """Return the pictures that were asked for.

    Raises:
        UsageError: no such kind, layer or head.
    """
    kinds = [map.kind for map in sentence.maps]
    if shown.kind is not None and shown.kind not in kinds:
        raise UsageError(f"no '{shown.kind[:40]}' attention", where="--kind", help=f"choose one of {', '.join(kinds)}")
    chosen = [map for map in sentence.maps if map.kind == shown.kind] if shown.kind else sentence.maps
    return [picture for map in (chosen if shown.every else chosen[:1]) for picture in _pictures(map, shown)]


def _pictures(map: AttentionMap, shown: MapSelection) -> list[MapSlice]:
    first, last, n_heads = map.first_layer, map.last_layer, map.weights.shape[1]
    layer = last if shown.layer is None else shown.layer
    for noun, number, least, most in (("layer", layer, first, last), ("head", shown.head, 1, n_heads)):
        if isinstance(number, int) and not least <= number <= most:
            help = f"choose {least} to {most}, mean, max or all"
            raise UsageError(f"{map.title} has no {noun} {number}", where=f"--{noun}", help=help)
    return pictures(map, layer, shown.head)


def checked(sentences: Iterable[AttentionExample], shown: MapSelection) -> Iterator[AttentionExample]:
    """Yield the sentences; the first one says whether there is what was chosen, whether or not it is drawn.

    Raises:
        UsageError: no such kind, layer or head.
    """
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
        if n_weights > MOST_WEIGHTS:
            raise DataError(
                f"{len(held):,} lines have more than {MOST_WEIGHTS:,} weights, too many for one file",
                help="give fewer or shorter lines",
            )
    return held
