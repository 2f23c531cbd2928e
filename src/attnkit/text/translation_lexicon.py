"""Lexicon files: translations of words or tokens, as tab-separated text.

The first line is the header: ``#`` and a JSON object. Each other line is ``source<TAB>target<TAB>probability``; tokens
are written as ids. The lines of one source are adjacent, most probable first. An empty source is NULL, the source of
target words that translate no source word.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, ValidationError

from attnkit.errors import DataError, RunError, SystemFailure
from attnkit.io.safe_read import open_regular_file, parse_json
from attnkit.text.config import MAX_ENTRIES

FORMAT: Literal["attnkit lexicon"] = "attnkit lexicon"
MAX_LINES = 1 << 24
MAX_BYTES = 1 << 30
MAX_HEADER_BYTES = 1 << 16
MAX_FREQUENT = 1000
_MARK = b"# "
_SHORTEST = 5  # bytes of the shortest possible line
_MAKE = "create one: attnkit align SRC TGT -o FILE"
_MAKE_TOKENS = "create one: attnkit align SRC TGT --run RUN -o FILE"

Id = Annotated[int, Field(ge=0, lt=MAX_ENTRIES)]
Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Header(BaseModel, frozen=True, extra="forbid", strict=True):
    """Header in the first line of a lexicon."""

    format: Literal["attnkit lexicon"] = FORMAT
    version: Literal[1] = 1
    units: Literal["words", "tokens"]
    """Words separated by white space, or tokens of two vocabularies."""
    lines: int = Field(ge=0, le=MAX_LINES)
    """Number of lines after the header."""
    vocabularies: tuple[Fingerprint, Fingerprint] | None = None
    """Fingerprints of the source and target vocabularies of a token lexicon."""
    frequent: tuple[Id, ...] = Field(default=(), max_length=MAX_FREQUENT)
    """Most frequent target tokens of a token lexicon, by descending frequency."""


@dataclass(frozen=True)
class Entries:
    """Translations with probabilities, by source, then by descending probability."""

    sources: NDArray[np.int64]  #: ids of source words, -1 for NULL
    targets: NDArray[np.int64]
    probs: NDArray[np.float64]


def lexicon_lines(
    entries: Entries,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    *,
    vocabularies: tuple[str, str] | None = None,
    frequent: Sequence[int] = (),
) -> Iterator[str]:
    """Yield the lines of a word lexicon (with ``names``) or token lexicon."""
    n_lines = len(entries.sources)
    if n_lines > MAX_LINES:
        what = f"the lexicon would have {n_lines:,} lines, more than {MAX_LINES:,}"
        raise DataError(what, help="raise --min-prob or lower --best")
    units: Literal["words", "tokens"] = "words" if names else "tokens"
    header = Header(units=units, lines=n_lines, vocabularies=vocabularies, frequent=tuple(frequent))
    yield _MARK.decode() + header.model_dump_json(exclude_none=True)
    columns = (entries.sources.tolist(), entries.targets.tolist(), entries.probs.tolist())
    for source, target, prob in zip(*columns, strict=True):
        left, right = (names[0][source], names[1][target]) if names else (source, target)
        yield f"{'' if source < 0 else left}\t{right}\t{prob:.6g}"


def load_dictionary(path: Path) -> dict[str, str]:
    """Load the best translation of each word; raise ``RunError`` for an invalid file."""
    best: dict[str, tuple[float, str]] = {}
    with _opened(path) as (header, rows):
        if header.units != "words":
            what = f"{path} is a token lexicon, not a word lexicon"
            raise RunError(what, help="without --run and --vocab, " + _MAKE)
        for number, source, target, prob in rows:
            if target.split() != [target] or (source and source.split() != [source]):
                raise _damaged(path, number, "a word is empty or contains white space")
            if source and (source not in best or prob > best[source][0]):
                best[source] = prob, target
    return {source: target for source, (_, target) in best.items()}


@dataclass(frozen=True)
class TokenLexicon:
    """Translations of each source token, as target tokens."""

    starts: NDArray[np.int64]  #: (n_src + 2,) offsets of the targets of each source: NULL in row 0, id in row id + 1
    targets: NDArray[np.int64]
    frequent: NDArray[np.int64]

    def of(self, source: int) -> NDArray[np.int64]:
        """Return the translations of a token, or of NULL (-1), in the order of the file."""
        return self.targets[self.starts[source + 1] : self.starts[source + 2]]


def load_tokens(path: Path, vocabularies: tuple[str, str], sizes: tuple[int, int]) -> TokenLexicon:
    """Load a token lexicon of two vocabularies, given by fingerprints and sizes.

    Raises ``RunError`` if the file is missing, damaged, a word lexicon or a lexicon of other vocabularies.
    """
    with _opened(path) as (header, rows):
        if header.units != "tokens":
            raise RunError(f"the lexicon {path} contains words, not tokens", help=_MAKE_TOKENS)
        if header.vocabularies != vocabularies:
            raise RunError(f"the lexicon {path} was built for other vocabularies", help=_MAKE_TOKENS)
        if max(header.frequent, default=0) >= sizes[1]:
            raise _damaged(path, 1, f"the vocabulary has no token {max(header.frequent):,}")
        sources = np.empty(header.lines, np.int64)
        targets = np.empty(header.lines, np.int64)
        for number, source, target, _ in rows:
            sources[number - 2] = _id(path, number, source, sizes[0]) if source else -1
            targets[number - 2] = _id(path, number, target, sizes[1])
    order = np.argsort(sources, kind="stable")
    starts = np.searchsorted(sources[order], np.arange(-1, sizes[0] + 1)).astype(np.int64)
    return TokenLexicon(starts, targets[order], np.array(header.frequent, np.int64))


def _id(path: Path, number: int, text: str, size: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) >= size:
        raise _damaged(path, number, f"{text[:40]!r} is not a token of the vocabulary")
    return int(text)


def _damaged(path: Path, number: int, why: str) -> RunError:
    return RunError(f"the lexicon is damaged: {why}", where=f"{path}:{number}", help=_MAKE)


_Row = tuple[int, str, str, float]  #: line number in the file, source, target, probability


@contextmanager
def _opened(path: Path) -> Iterator[tuple[Header, Iterator[_Row]]]:
    """Open a lexicon; yield its header and an iterator over its rows, both checked."""
    with ExitStack() as stack:
        try:
            stream = stack.enter_context(open_regular_file(path, follow=True))
            size = os.fstat(stream.fileno()).st_size
            raw = stream.readline(MAX_HEADER_BYTES)
            if not raw.startswith(_MARK) or not raw.endswith(b"\n"):
                raise ValueError("its first line is not a lexicon header")
            text = raw[len(_MARK) :]
            parse_json(text)  # rejects duplicate keys
            header = Header.model_validate_json(text)
            if size > MAX_BYTES or header.lines * _SHORTEST > size:
                raise ValueError(f"{size:,} bytes: too {'many' if size > MAX_BYTES else 'few for its lines'}")
        except FileNotFoundError as error:
            raise RunError(f"no such lexicon: {path}", help=_MAKE) from error
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))[:80]
            what = f"{path} is not a lexicon: header field {place}: {first['msg']}"
            raise RunError(what, help=_MAKE) from error
        except ValueError as error:
            raise RunError(f"{path} is not a lexicon: {error}", help=_MAKE) from error
        except OSError as error:
            raise SystemFailure(f"cannot read {path}: {error.strerror}") from error

        def rows() -> Iterator[_Row]:
            number, total = 1, f"{header.lines:,} entries"
            for number, raw in enumerate(stream, 2):
                if number > header.lines + 1:
                    raise _damaged(path, number, f"more entries than the header declares ({header.lines:,})")
                try:
                    source, target, text = raw.decode("utf-8").removesuffix("\n").split("\t")
                    prob = float(text)
                except ValueError as error:
                    raise _damaged(path, number, "expected source, target, probability, separated by tabs") from error
                if not 0 < prob <= 1.000001:  # also rejects NaN
                    raise _damaged(path, number, f"{text[:40]} is not a probability")
                yield number, source, target, prob
            if number <= header.lines:
                raise _damaged(path, number, f"truncated here, expected {total}")

        yield header, rows()


def select(sources: NDArray[np.int64], targets: NDArray[np.int64], probs: NDArray[np.float64], best: int) -> Entries:
    """Return the ``best`` likeliest entries per source; the lower target wins ties."""
    order = np.lexsort((targets, -probs, sources))
    sources = sources[order]
    rank = np.arange(len(order)) - np.searchsorted(sources, sources)
    kept = order[rank < best]
    return Entries(sources[rank < best], targets[kept], probs[kept])


def most_frequent(words: NDArray[np.int32], n_words: int) -> list[int]:
    """Return up to ``MAX_FREQUENT`` most frequent ids; the lower id wins ties."""
    counts = np.bincount(words, minlength=n_words)
    order = np.argsort(-counts, kind="stable")[:MAX_FREQUENT]
    return [int(number) for number in order if counts[number] > 0]
