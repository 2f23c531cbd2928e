"""Several corpora in one stream of rows: which share each has of an epoch (Conneau and Lample 2019, section 3.1).

A corpus that holds the share p of all there is gets a share that grows as p**alpha. An epoch is as long as all corpora
together: the small ones come several times in it, of the large ones a part, new in each epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from attnkit.data.permutation import FeistelPermutation, Words, subset

Integers = npt.NDArray[np.integer[Any]]


def sampling_probabilities(sizes: Sequence[int], alpha: float) -> list[float]:
    """Return the share of an epoch that each corpus gets.

    >>> shares([900, 100], 0.5)
    [0.75, 0.25]
    """
    raised = [(size / sum(sizes)) ** alpha for size in sizes]
    return [one / sum(raised) for one in raised]


class CorpusMixture:
    """Rows of several corpora, some of which come more than once in an epoch.

    Each coming has a number of its own: first all rows as they are, then further comings of corpus after corpus. So
    whatever is drawn for a row by its number is drawn anew each time it comes.
    """

    def __init__(self, n_rows: Sequence[int], weights: Sequence[float]) -> None:
        """Take the rows of each corpus, laid end to end, and how often an epoch uses each of them."""
        self.n_rows, self.weights = list(n_rows), list(weights)
        self.n = sum(n_rows)
        first = np.cumsum([0, *n_rows])[:-1]
        repeats = [(c, weight) for c, weight in enumerate(weights) for _ in range(1, int(np.ceil(weight)))]
        self._starts = np.cumsum([self.n, *(n_rows[c] for c, _ in repeats)])
        self._first = np.array([first[c] for c, _ in repeats], np.int64)
        self._blocks: list[list[int]] = [[int(first[c])] for c in range(len(n_rows))]
        for (c, _), start in zip(repeats, self._starts, strict=False):
            self._blocks[c].append(int(start))

    def __len__(self) -> int:
        """Return how many comings there are in all."""
        return int(self._starts[-1])

    @property
    def plain(self) -> bool:
        """Whether an epoch is each row once."""
        return all(weight == 1 for weight in self.weights)

    def rows(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the rows that come under some numbers."""
        if not len(self._first):
            return numbers
        block = np.searchsorted(self._starts, numbers, side="right") - 1
        again = block >= 0
        found = numbers.copy()
        found[again] += self._first[block[again]] - self._starts[block[again]]
        return found

    def spread(self, lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the length of each coming, from those of the rows."""
        return lengths if not len(self._first) else lengths[self.rows(np.arange(len(self)))]

    def draw(self, seed: int, epoch: int) -> Words | None:
        """Return the numbers that come in an epoch, in no particular order; None where these are all."""
        if self.plain:
            return None
        drawn = []
        for corpus, (n, weight) in enumerate(zip(self.n_rows, self.weights, strict=True)):
            whole = int(weight)
            for copy, start in enumerate(self._blocks[corpus]):
                if copy < whole:
                    drawn.append(np.arange(start, start + n, dtype=np.uint32))
                elif part := round((weight - whole) * n):
                    chosen = subset(n, part, FeistelPermutation("mixture", seed, epoch, corpus))
                    drawn.append(chosen + np.uint32(start))
        return np.concatenate(drawn)
