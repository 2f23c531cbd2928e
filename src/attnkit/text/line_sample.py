"""Uniform samples of the lines of a text, in one pass."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

from attnkit.text.line_blocks import read_blocks

_BELOW_ONE = 1 - 2.0**-53


def sample_lines(text: Iterable[Path | str], n: int, seed: int) -> list[str]:
    """Return ``n`` of the lines of files, or of given lines, in their order.

    Every line is equally likely. The result depends on the lines and the seed alone; only the sample is kept in memory.
    Raises the errors of ``read_blocks``, and ``DataError`` for a file that is not valid UTF-8.
    """
    sample = _LineSample(n, seed)
    for item in text:
        if isinstance(item, Path):
            for block in read_blocks(item):
                sample.add(block.lines())
        else:
            sample.add((item,))
    return sample.lines()


class _LineSample:
    """Reservoir of lines, filled by Algorithm L (Li 1994): a few draws per line kept."""

    def __init__(self, n: int, seed: int) -> None:
        self._n, self._random = n, Random(seed).random
        self._kept: list[tuple[int, str]] = []  #: numbers of the lines so far, and the lines
        self._n_seen = self._next = 0  #: lines seen, and the number of the next line to keep
        self._highest = 1.0  #: of the random keys of the lines kept, if each line had one

    def add(self, lines: Sequence[str]) -> None:
        """Take the next lines of the text."""
        begin = self._n_seen
        self._n_seen += len(lines)
        while self._next < self._n_seen:
            entry = self._next, lines[self._next - begin]
            if len(self._kept) < self._n:
                self._kept.append(entry)
            else:
                self._kept[int(self._n * self._random())] = entry
            self._next += 1
            if len(self._kept) == self._n:
                self._highest *= math.exp(math.log(1 - self._random()) / self._n)
                chance = min(self._highest, _BELOW_ONE)  # that the next line has a lower key
                self._next += math.floor(math.log(1 - self._random()) / math.log1p(-chance))

    def lines(self) -> list[str]:
        """Return the lines kept, in the order of the text."""
        return [line for _, line in sorted(self._kept)]
