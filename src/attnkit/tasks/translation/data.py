"""From parallel text to encoded pairs: filtering, held-out pairs, vocabularies. Everything lies in RUN/data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

from attnkit.data.config import DataConfig
from attnkit.data.pairs import Pairs, write_pairs
from attnkit.data.prepared_dir import (
    DataCheckEvent,
    StatusEvent,
    WarningEvent,
    is_prepared,
    open_prepared_dir,
    read_lines,
    sample_validation_indices,
    write_index,
    write_lines,
)
from attnkit.engine.vocabularies import Vocabularies, load_vocabularies
from attnkit.errors import DataError
from attnkit.io import atomic
from attnkit.protocols import UNK_ID
from attnkit.tasks.translation.config import TranslationConfig
from attnkit.text.check import PairDrops, check_pair, clean_pairs
from attnkit.text.config import CheckConfig
from attnkit.text.lines import count_lines
from attnkit.text.parallel import mismatch, read_parallel
from attnkit.text.tokenizer import Tokenizer
from attnkit.text.vocabulary import train_vocabulary

Pair = tuple[str, str]


@dataclass
class Counts:
    """What became of the pairs of the training files."""

    kept: int = 0
    held_out: int = 0
    repeats_of_held_out: int = 0
    """Training pairs whose source is that of a held-out pair: left out, so that the score means something."""
    drops: PairDrops = field(default_factory=PairDrops)

    def flat(self) -> dict[str, int]:
        """Return all counts by name; ``read`` is their sum."""
        drops = asdict(self.drops)
        read = self.kept + self.held_out + self.repeats_of_held_out + sum(drops.values())
        return {"read": read, "held_out": self.held_out, "repeats_of_held_out": self.repeats_of_held_out, **drops}


class ParallelData:
    """The files of a run. Text is read from them as often as it is asked for, and never held."""

    def __init__(self, data: DataConfig) -> None:
        self.data = data
        self.training = _together(data.src, data.tgt)
        self.validation = _together(data.valid_src or (), data.valid_tgt or ())
        self.limits = CheckConfig(max_ratio=data.max_character_ratio)
        self.counts = Counts()
        """Of the last full reading of the training text."""
        self.blank_valid = 0
        """Validation pairs of which a line is blank."""
        # Lines before each pair of files and, last, in all of them; without held-out lines nobody needs to know.
        self._starts = [0] if self.validation else [0, *accumulate(count_lines(src) for src, _ in self.training)]
        self._held_out = set() if self.validation else self._choose_held_out(self._starts[-1])
        self.valid = list(self._read_validation() if self.validation else self._read_held_out())
        """The pairs to validate on."""
        self._valid_sources = set() if self.validation else {src for src, _ in self.valid}

    @property
    def inputs(self) -> list[Path]:
        """Every file, once."""
        return list(dict.fromkeys(path for pair in (*self.training, *self.validation) for path in pair))

    def corpus(self, number: int) -> Iterator[Pair]:
        """Yield the kept pairs of one pair of training files, counting what is left out; the first counts anew."""
        if number == 0:
            self.counts = Counts()
        counts, first = self.counts, self._starts[number] if self._held_out else 0
        for line, pair in clean_pairs(*self.training[number], counts.drops, self.limits):
            if first + line in self._held_out:
                counts.held_out += 1
            elif pair[0] in self._valid_sources:
                counts.repeats_of_held_out += 1
            else:
                counts.kept += 1
                yield pair

    def lines(self, *sides: int) -> Iterator[str]:
        """Yield the source (0) or target lines (1) of all kept training pairs, or both in turn."""
        for number in range(len(self.training)):
            for pair in self.corpus(number):
                for side in sides:
                    yield pair[side]

    def _choose_held_out(self, total: int) -> set[int]:
        """Return which of the ``total`` pairs of all files, counted from 0, are kept for validation."""
        where = str(self.training[0][0])
        if total < 2:
            raise DataError(f"{total} pairs are too few to train on and to hold one out", where=where)
        return sample_validation_indices(total, self.data.held_out, self.data.held_out_seed, where)

    def _read_held_out(self) -> Iterator[Pair]:
        """Yield the chosen pairs, less those that training would leave out: reading the training text counts them."""
        for (src, tgt), first in zip(self.training, self._starts, strict=False):
            for line, pair in clean_pairs(src, tgt, PairDrops(), self.limits):
                if first + line in self._held_out:
                    yield pair

    def _read_validation(self) -> Iterator[Pair]:
        for src, tgt in self.validation:
            for pair in read_parallel(src, tgt):
                if pair[0].strip() and pair[1].strip():
                    yield pair
                else:
                    self.blank_valid += 1


def _together(src: Sequence[str], tgt: Sequence[str]) -> list[tuple[Path, Path]]:
    return list(zip(map(Path, src), map(Path, tgt), strict=True))


_CHUNK = 4096  # lines encoded at a time
_LONGEST_VALID = 4096  # tokens
_MOST_UNKNOWN = 0.01


@dataclass(frozen=True)
class Prepared:
    """Everything that a training job reads."""

    pairs: Pairs
    valid: Pairs
    valid_src: list[str]
    valid_tgt: list[str]
    vocabularies: Vocabularies
    counts: dict[str, Any]

    @property
    def fingerprint(self) -> str:
        """Changes with any id and any border between lines."""
        return self.pairs.fingerprint

    @property
    def texts(self) -> Mapping[str, bytes]:
        """What a checkpoint holds besides weights: the vocabularies."""
        return self.vocabularies.files()


def prepare(
    config: TranslationConfig,
    folder: Path,
    given: Callable[[], Vocabularies | None] = lambda: None,
    origin: str | None = None,
    source: Callable[[], Tokenizer | None] = lambda: None,
) -> Iterator[StatusEvent | DataCheckEvent | WarningEvent]:
    """Encode the training text into ``folder``, unless that has been done.

    Args:
        config: the run's configuration.
        folder: RUN/data.
        given: asked for vocabularies to use instead of new ones, where there is nothing yet.
        origin: fingerprint of the weights that initialize the run. Text of other weights is encoded again: the ids
            of another vocabulary would mean nothing to these.
        source: asked for the source's vocabulary, where both are not given.

    Raises:
        DataError: missing or undecodable files, different line counts, nothing left to train on.
        RunError: the folder is damaged.
        UsageError: the files changed since the folder was made.
    """
    data = config.data
    if is_prepared(folder, [*data.src, *data.tgt, *(data.valid_src or ()), *(data.valid_tgt or ())], origin):
        return
    yield StatusEvent("checking the text")
    yield from _check(config)
    yield from _build(config, folder, given(), source(), origin)


def open_prepared(folder: Path) -> Prepared:
    """Open what ``prepare`` made. Raises ``RunError`` naming what is damaged, and the folder as what to remove."""
    with open_prepared_dir(folder) as index:
        valid_src, valid_tgt = (read_lines(folder / f"valid.{side}.txt") for side in ("src", "tgt"))
        if not len(valid_src) == len(valid_tgt) == index["counts"].get("valid"):
            raise ValueError("lines to validate on are missing")
        return Prepared(
            pairs=Pairs.open(folder / "train"),
            valid=Pairs.open(folder / "valid"),
            valid_src=valid_src,
            valid_tgt=valid_tgt,
            vocabularies=load_vocabularies(folder),
            counts=index["counts"],
        )


def _build(
    config: TranslationConfig, folder: Path, given: Vocabularies | None, source: Tokenizer | None, origin: str | None
) -> Iterator[StatusEvent | WarningEvent]:
    data = config.data
    with atomic.atomic_dir(folder) as temporary:
        corpora = ParallelData(data)
        if not corpora.valid:
            raise DataError("no pair of lines is left to validate on", help="give --valid-src and --valid-tgt")
        if given is None:
            what = "two vocabularies" if source is None else "the target's vocabulary"
            yield StatusEvent(f"building {'the vocabulary' if config.joint_vocabulary else what}")
            given = _train_vocabularies(config, corpora, source)
        for name, content in given.files().items():
            atomic.write_new_file(temporary / name, content)
        yield StatusEvent("encoding the text")
        sizes = (given.src.vocab_size, given.tgt.vocab_size)
        unknown = Unknown()
        encoded = [_encode(corpora.corpus(number), given, unknown) for number in range(len(corpora.training))]
        pairs = write_pairs(temporary / "train", encoded, sizes, data)
        if not len(pairs):
            raise DataError("no pair of lines is left to train on", help=f"attnkit check {data.src[0]} {data.tgt[0]}")
        yield from map(WarningEvent, unknown.warnings())
        # Validation shows what the model does with any text; only what it has no positions for cannot be tried.
        longest = (
            _LONGEST_VALID
            if config.model.max_positions is None
            else min(_LONGEST_VALID, config.model.max_positions - 1)
        )
        loose = data.model_copy(update={"max_length": longest, "max_ratio": 1e9})
        valid = write_pairs(temporary / "valid", [_encode(iter(corpora.valid), given, Unknown())], sizes, loose)
        for side, lines in zip(("src", "tgt"), zip(*corpora.valid, strict=True), strict=True):
            write_lines(temporary / f"valid.{side}.txt", lines)
        counts = {**corpora.counts.flat(), **asdict(pairs.dropped), "train": len(pairs), "valid": len(corpora.valid)}
        counts |= {"blank_in_validation": corpora.blank_valid, "without_validation_loss": valid.dropped.too_long}
        write_index(temporary, corpora.inputs, origin, counts)


@dataclass
class Unknown:
    """Tokens of both sides, and how many of them the vocabulary does not know."""

    tokens: list[int] = field(default_factory=lambda: [0, 0])
    unknown: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, side: int, rows: Sequence[Sequence[int]]) -> None:
        """Count encoded lines of a side."""
        self.tokens[side] += sum(map(len, rows))
        self.unknown[side] += sum(row.count(UNK_ID) for row in rows)

    def warnings(self) -> list[str]:
        """Return what to tell where more is unknown than a few names."""
        return [
            f"{unknown / tokens:.1%} of the {side} tokens are unknown to the vocabulary"
            for side, tokens, unknown in zip(("source", "target"), self.tokens, self.unknown, strict=True)
            if unknown > _MOST_UNKNOWN * tokens
        ]


def _train_vocabularies(config: TranslationConfig, corpora: ParallelData, source: Tokenizer | None) -> Vocabularies:
    if source is not None:
        return Vocabularies(source, train_vocabulary(corpora.lines(1), config.vocabulary))
    if config.joint_vocabulary:
        joint = train_vocabulary(corpora.lines(0, 1), config.vocabulary)
        return Vocabularies(joint, joint)
    return Vocabularies(*(train_vocabulary(corpora.lines(side), config.vocabulary) for side in (0, 1)))


def _encode(
    pairs: Iterator[tuple[str, str]], vocabularies: Vocabularies, unknown: Unknown
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    while chunk := list(islice(pairs, _CHUNK)):
        src, tgt = zip(*chunk, strict=True)
        rows = vocabularies.src.encode(src), vocabularies.tgt.encode(tgt)
        for side in (0, 1):
            unknown.add(side, rows[side])
        yield rows


def _check(config: TranslationConfig) -> Iterator[DataCheckEvent]:
    """Look through all files; refuse those that cannot be trained on."""
    data = config.data
    limits = CheckConfig(max_ratio=data.max_character_ratio)
    corpora = list(zip(map(Path, data.src), map(Path, data.tgt), strict=True))
    given = list(zip(map(Path, data.valid_src or ()), map(Path, data.valid_tgt or ()), strict=True))
    for src, tgt in [*corpora, *given]:
        report = check_pair(src, tgt, limits, others=corpora[0] if (src, tgt) in given else None)
        yield DataCheckEvent(report)
        for other in corpora[1:] if (src, tgt) in given else ():
            overlap = [f for f in check_pair(src, tgt, others=other).findings if f.name.endswith("_overlap")]
            yield DataCheckEvent(replace(report, findings=overlap))
        if report.n_src != report.n_tgt:
            raise mismatch(src, tgt, report.n_src, report.n_tgt)
        for finding in report.findings:
            if finding.fatal:
                path = tgt if finding.side == "target" else src
                raise DataError(
                    f"{finding.count:,} {finding.text}",
                    where=f"{path}:{finding.first_line}" if finding.first_line else str(path),
                    help=f"attnkit check {src} {tgt} shows everything that is odd",
                )
