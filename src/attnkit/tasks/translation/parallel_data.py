"""Parallel files of a run, in its directions: training and validation pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path

from attnkit.data import prepared_dir
from attnkit.data.config import DataConfig
from attnkit.data.directions import FilePair
from attnkit.errors import DataError, UsageError
from attnkit.quality.pair_filters import Pair, PairDrops, clean_pairs
from attnkit.text.config import CheckConfig
from attnkit.text.lines import count_lines, is_blank
from attnkit.text.parallel import read_parallel
from attnkit.text.tags import is_back_translated


class ParallelData:
    """Parallel files of a run: training text re-read on demand, validation in memory."""

    def __init__(self, data: DataConfig) -> None:
        pairs, validation = data.training_pairs, data.validation_pairs
        self.training = [(Path(pair.src), Path(pair.tgt)) for pair in pairs]
        self.validation = [(Path(pair.src), Path(pair.tgt)) for pair in validation]
        if data.bidirectional:
            check_both_ways(data)
        self.directions = [pair.direction for pair in pairs]
        """Direction of each corpus, such as ``en:de``; empty strings without directions."""
        self.limits = CheckConfig(max_ratio=data.max_character_ratio)
        # Counts of the last full pass over the training text.
        self.n_kept = self.n_held_out = self.n_repeats = 0
        self.drops = PairDrops()
        self.valid: list[Pair]
        """Validation pairs."""
        self.valid_directions: list[str] = []
        """Direction of each validation pair; empty strings without directions."""
        self.n_blank_valid = 0
        """Number of validation pairs dropped for a blank side."""
        # Number of lines before each pair of files; used only to find held-out pairs.
        self._starts = [0]
        self._held_out: set[int] = set()
        self._valid_sources: set[str] = set()
        if self.validation:
            self.valid = []
            for files, one in zip(self.validation, validation, strict=True):
                found = list(read_parallel(*files))
                kept = [pair for pair in found if not (is_blank(pair[0]) or is_blank(pair[1]))]
                self.valid += kept
                self.valid_directions += [one.direction] * len(kept)
                self.n_blank_valid += len(found) - len(kept)
        else:
            self._hold_out(data, pairs)

    def _hold_out(self, data: DataConfig, pairs: Sequence[FilePair]) -> None:
        """Choose pairs of the training text for validation."""
        # What a model wrote is no standard to validate by, unless there is nothing else.
        written = [is_back_translated(src) for src, _ in self.training]
        n_files = len(data.src)  # both directions of two files hold out the same lines, and general text none
        self._validates = [
            (not is_written or all(written)) and pair.number < n_files
            for is_written, pair in zip(written, pairs, strict=True)
        ]
        own = zip(self.training[:n_files], self._validates, strict=False)
        *starts, total = accumulate((count_lines(src) * validates for (src, _), validates in own), initial=0)
        self._starts = [starts[pair.number] if pair.number < n_files else 0 for pair in pairs]
        where = str(self.training[0][0])
        if total < 2:
            raise DataError(f"{total} sentence pairs are too few for training and held-out validation", where=where)
        self._held_out = prepared_dir.sample_validation_indices(total, data.held_out, data.held_out_seed, where)
        held_out = [
            (pair, pairs[number].direction)  # dropped pairs are counted later, when the training text is read
            for number, files in enumerate(self.training)
            for line, pair in clean_pairs(*files, PairDrops(), self.limits)
            if self._is_held_out(number, line)
        ]
        self.valid, self.valid_directions = [pair for pair, _ in held_out], [name for _, name in held_out]
        self._valid_sources = {src for src, _ in self.valid}

    @property
    def counts(self) -> dict[str, int]:
        """Counts of training pairs read and dropped; ``read`` includes kept pairs.

        ``repeats_of_held_out`` share the source of a held-out pair; training on them would inflate validation scores.
        """
        drops = asdict(self.drops)
        read = self.n_kept + self.n_held_out + self.n_repeats + sum(drops.values())
        return {"read": read, "held_out": self.n_held_out, "repeats_of_held_out": self.n_repeats, **drops}

    def corpus(self, number: int) -> Iterator[Pair]:
        """Yield the kept pairs of file pair ``number``; count the rest (0 resets counts)."""
        if number == 0:
            self.n_kept = self.n_held_out = self.n_repeats = 0
            self.drops = PairDrops()
        for line, pair in clean_pairs(*self.training[number], self.drops, self.limits):
            if self._is_held_out(number, line):
                self.n_held_out += 1
            elif pair[0] in self._valid_sources:
                self.n_repeats += 1
            else:
                self.n_kept += 1
                yield pair

    def _is_held_out(self, number: int, line: int) -> bool:
        if not self._held_out or not self._validates[number]:
            return False
        return self._starts[number] + line in self._held_out

    def pairs(self) -> Iterator[Pair]:
        """Yield all kept pairs."""
        for number in range(len(self.training)):
            yield from self.corpus(number)

    def lines(self, *sides: int) -> Iterator[str]:
        """Yield source (0) or target (1) lines of all kept pairs, or both alternately."""
        for pair in self.pairs():
            for side in sides:
                yield pair[side]


def check_both_ways(data: DataConfig) -> None:
    """Raise ``UsageError`` if a file of bidirectional training is back-translated."""
    for path in data.src:
        if is_back_translated(Path(path)):
            what = "back-translated text has one direction, not two"
            raise UsageError(what, where=path, help="name each direction with --pair, and leave out --bidirectional")


def file_pairs(src: Sequence[str] | None, tgt: Sequence[str] | None) -> list[tuple[Path, Path]]:
    return list(zip(map(Path, src or ()), map(Path, tgt or ()), strict=True))
