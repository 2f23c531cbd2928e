"""Which pairs of lines are trained on and which are validated on, as text; what is left out is counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path

from attnkit.data.config import DataConfig
from attnkit.data.prepared_dir import sample_validation_indices
from attnkit.errors import DataError
from attnkit.text.check import PairDrops, clean_pairs
from attnkit.text.config import CheckConfig
from attnkit.text.lines import count_lines
from attnkit.text.parallel import read_parallel

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
