"""Sentences of a search in compiled loops that are done while others are searched."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from attnkit.decoding.hypothesis import Hypothesis


class Reports:
    """Hands on the sentences of a running search that are done.

    The loops may write the parts of a result in any order: one that was there at the last look is whole.
    """

    def __init__(
        self,
        report: Callable[[int, list[Hypothesis]], None],
        lengths: NDArray[np.int64],  # (n, n_results), of the results; -1 until a sentence is done
        goes_on: Callable[[], NDArray[np.bool_]],
        hypotheses: Callable[[NDArray[np.int64]], Iterable[list[Hypothesis]]],
    ) -> None:
        """Take what reads the search.

        Args:
            report: receives the number of a sentence and its translations, best first.
            lengths: those that the loops write.
            goes_on: returns (n,), False for sentences that were stopped.
            hypotheses: returns the translations of the sentences of some numbers.
        """
        self._report, self._lengths, self._goes_on, self._hypotheses = report, lengths, goes_on, hypotheses
        self._seen, self._told = (np.zeros(len(lengths), np.bool_) for _ in range(2))

    def look(self) -> None:
        """Report what was done at the last look."""
        done = (self._lengths[:, 0] >= 0) & self._goes_on()  # (n,)
        (rows,) = np.nonzero(done & self._seen & ~self._told)
        self._seen = done
        if len(rows):
            self._told[rows] = True
            for row, found in zip(rows.tolist(), self._hypotheses(rows), strict=True):
                self._report(row, found)
