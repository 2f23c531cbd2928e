"""From raw text to what training reads: held-out pairs, vocabularies, encoded pairs. Everything lies in RUN/data.

The folder appears complete or not at all, and can be rebuilt from the text. It remembers the contents of the files it
was made from, so that a run never goes on with other data than it began with.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from attnkit import files
from attnkit.data.pairs import Pairs, write_pairs
from attnkit.errors import DataError, RunError, UsageError
from attnkit.tasks.config import TranslationConfig
from attnkit.tasks.resolve import count_lines
from attnkit.tasks.vocabularies import Vocabularies, load_vocabularies
from attnkit.text.check import PairDrops, check_pair, clean_pairs
from attnkit.text.findings import Report
from attnkit.text.parallel import mismatch, read_parallel
from attnkit.text.vocabulary import train_vocabulary

_CHUNK = 4096  # lines encoded at a time


@dataclass(frozen=True)
class Stage:
    """Something that takes a while has begun."""

    text: str


@dataclass(frozen=True)
class Warned:
    """Something is not as it should be; the run goes on."""

    text: str


@dataclass(frozen=True)
class Checked:
    """Two files were looked through before they are used."""

    report: Report


@dataclass
class Counts:
    """What became of the pairs of the training files."""

    read: int = 0
    held_out: int = 0
    repeats_of_held_out: int = 0
    """Training pairs whose source is that of a held-out pair: left out, so that the score means something."""
    drops: PairDrops = field(default_factory=PairDrops)


@dataclass(frozen=True)
class Prepared:
    """Everything that a training job reads."""

    pairs: Pairs
    valid: Pairs
    valid_src: list[str]
    valid_tgt: list[str]
    vocabularies: Vocabularies
    counts: dict[str, Any]


def prepare(
    config: TranslationConfig, folder: Path, vocabularies: Vocabularies | None = None
) -> Generator[Stage | Checked, None, Prepared]:
    """Encode the training text into ``folder``, or open it if it is there.

    Args:
        config: the run's configuration.
        folder: RUN/data.
        vocabularies: used instead of new ones (``--init-from``).

    Raises:
        DataError: missing or undecodable files, different line counts, nothing left to train on.
        UsageError: the files changed since the folder was made.
    """
    if (folder / "prepared.json").exists():
        _refuse_changed_files(config, folder)
    else:
        yield Stage("checking the text")
        yield from _check(config)
        yield from _build(config, folder, vocabularies)
    return open_prepared(folder)


def open_prepared(folder: Path) -> Prepared:
    """Open what ``prepare`` made. Raises ``RunError`` naming what is damaged."""
    try:
        index = json.loads((folder / "prepared.json").read_bytes())
        valid_src, valid_tgt = (_read_lines(folder / f"valid.{side}.txt") for side in ("src", "tgt"))
    except (OSError, ValueError) as error:
        raise RunError(
            "the prepared text is damaged", where=str(folder), help="remove that folder: it is rebuilt"
        ) from error
    return Prepared(
        pairs=Pairs.open(folder / "train"),
        valid=Pairs.open(folder / "valid"),
        valid_src=valid_src,
        valid_tgt=valid_tgt,
        vocabularies=load_vocabularies(folder),
        counts=index["counts"],
    )


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a file's bytes as they lie on disk."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise DataError(f"cannot read this file: {error.strerror}", where=str(path)) from error
    return digest.hexdigest()


def _build(config: TranslationConfig, folder: Path, given: Vocabularies | None) -> Generator[Stage, None, None]:
    data = config.data
    counts = Counts()
    with files.new_folder(folder) as temporary:
        corpora = list(zip(map(Path, data.src), map(Path, data.tgt), strict=True))
        held_out = _choose_held_out(config, corpora)
        valid = _read_valid(config, corpora, held_out)
        if not valid:
            raise DataError("no pair of lines is left to validate on", help="give --valid-src and --valid-tgt")
        source = TrainingText(corpora, held_out, {src for src, _ in valid}, data.valid_src is None, counts)
        if given is None:
            yield Stage("building the vocabulary" if config.joint_vocabulary else "building two vocabularies")
            given = _train_vocabularies(config, source)
        for name, content in given.files().items():
            files.write_into(temporary / name, content)
        yield Stage("encoding the text")
        sizes = (given.src.vocab_size, given.tgt.vocab_size)
        encoded = [_encode(source.corpus(number), given) for number in range(len(corpora))]
        pairs = write_pairs(temporary / "train", encoded, sizes, data)
        if not len(pairs):
            raise DataError("no pair of lines is left to train on", help=f"attnkit check {data.src[0]} {data.tgt[0]}")
        write_pairs(
            temporary / "valid",
            [_encode(iter(valid), given)],
            sizes,
            data.model_copy(update={"max_length": 4096, "max_ratio": 1e9}),
        )
        for side, lines in zip(("src", "tgt"), zip(*valid, strict=True), strict=True):
            files.write_into(temporary / f"valid.{side}.txt", "".join(line + "\n" for line in lines).encode())
        index = {
            "files": {str(path): fingerprint(path) for path in _inputs(config)},
            "counts": {**_flat(counts), **asdict(pairs.dropped), "train": len(pairs), "valid": len(valid)},
        }
        files.write_into(temporary / "prepared.json", json.dumps(index, indent=1).encode())


@dataclass
class TrainingText:
    """The kept training pairs as text, read from the files as often as they are asked for."""

    corpora: Sequence[tuple[Path, Path]]
    held_out: set[int]
    valid_sources: set[str]
    drop_repeats: bool
    counts: Counts

    def corpus(self, number: int) -> Iterator[tuple[str, str]]:
        """Yield the kept pairs of one corpus, counting what is left out (anew on each full reading)."""
        first = sum(count_lines(src) for src, _ in self.corpora[:number])
        if number == 0:
            self.counts.__init__()  # type: ignore[misc]
        src, tgt = self.corpora[number]
        for line, pair in clean_pairs(src, tgt, self.counts.drops):
            self.counts.read += 1
            if first + line in self.held_out:
                self.counts.held_out += 1
            elif self.drop_repeats and pair[0] in self.valid_sources:
                self.counts.repeats_of_held_out += 1
            else:
                yield pair


def _train_vocabularies(config: TranslationConfig, source: TrainingText) -> Vocabularies:
    def side(*sides: int) -> Iterator[str]:
        for number in range(len(source.corpora)):
            for pair in source.corpus(number):
                for k in sides:
                    yield pair[k]

    if config.joint_vocabulary:
        joint = train_vocabulary(side(0, 1), config.vocabulary)
        return Vocabularies(joint, joint)
    return Vocabularies(train_vocabulary(side(0), config.vocabulary), train_vocabulary(side(1), config.vocabulary))


def _encode(
    pairs: Iterator[tuple[str, str]], vocabularies: Vocabularies
) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
    while chunk := list(islice(pairs, _CHUNK)):
        src, tgt = zip(*chunk, strict=True)
        yield vocabularies.src.encode(src), vocabularies.tgt.encode(tgt)


def _check(config: TranslationConfig) -> Iterator[Checked]:
    """Look through all files; refuse those that cannot be trained on."""
    data = config.data
    corpora = list(zip(map(Path, data.src), map(Path, data.tgt), strict=True))
    given = list(zip(map(Path, data.valid_src or ()), map(Path, data.valid_tgt or ()), strict=True))
    for src, tgt in [*corpora, *given]:
        report = check_pair(src, tgt, others=corpora[0] if (src, tgt) in given else None)
        yield Checked(report)
        for other in corpora[1:] if (src, tgt) in given else ():
            overlap = [f for f in check_pair(src, tgt, others=other).findings if f.name.endswith("_overlap")]
            yield Checked(replace(report, findings=overlap))
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


def _choose_held_out(config: TranslationConfig, corpora: Sequence[tuple[Path, Path]]) -> set[int]:
    """Return line numbers (counted over all files, from 0) of the pairs kept for validation."""
    if config.data.valid_src is not None:
        return set()
    total = sum(count_lines(src) for src, _ in corpora)
    wanted = min(config.data.held_out, max(1, total // 20))
    if total < 2:
        raise DataError(f"{total} pairs are too few to train on and to hold one out", where=str(corpora[0][0]))
    return set(random.Random(config.data.held_out_seed).sample(range(total), wanted))


def _read_valid(
    config: TranslationConfig, corpora: Sequence[tuple[Path, Path]], held_out: set[int]
) -> list[tuple[str, str]]:
    data = config.data
    if data.valid_src is not None and data.valid_tgt is not None:
        given = zip(map(Path, data.valid_src), map(Path, data.valid_tgt), strict=True)
        return [pair for src, tgt in given for pair in read_parallel(src, tgt) if pair[0].strip() and pair[1].strip()]
    found, first = [], 0
    for src, tgt in corpora:
        for number, pair in enumerate(read_parallel(src, tgt), first):
            if number in held_out and pair[0].strip() and pair[1].strip():
                found.append(pair)
        first += count_lines(src)
    return found


def _refuse_changed_files(config: TranslationConfig, folder: Path) -> None:
    """Compare the files, where they still exist, with what they were when the folder was made."""
    known = json.loads((folder / "prepared.json").read_bytes())["files"]
    for path in _inputs(config):
        if path.exists() and str(path) in known and fingerprint(path) != known[str(path)]:
            raise UsageError(
                "this file has changed since the run began",
                where=str(path),
                help="put the old text back, or start anew with --overwrite or another -o",
            )


def _inputs(config: TranslationConfig) -> list[Path]:
    data = config.data
    named = [*data.src, *data.tgt, *(data.valid_src or ()), *(data.valid_tgt or ())]
    return [Path(name) for name in dict.fromkeys(named)]


def _flat(counts: Counts) -> dict[str, int]:
    flat = asdict(counts)
    return {**{key: value for key, value in flat.items() if key != "drops"}, **flat["drops"]}


def _read_lines(path: Path) -> list[str]:
    return path.read_bytes().decode().split("\n")[:-1]
