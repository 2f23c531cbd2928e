"""Sentences of a search in compiled loops that are done while others are searched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from attnkit.decoding.hypothesis import Hypothesis


class Reports:
    """Hands on sentences of a running search that are done.

    It ends when ``report`` raises. The loops write the length of a result last: all of it is there then.
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
        self._told = np.zeros(len(lengths), np.bool_)
        self._error: BaseException | None = None
        self._thread: int | None = None

    def look(self) -> None:
        """Report what was done since the last look."""
        (rows,) = np.nonzero((self._lengths[:, 0] >= 0) & self._goes_on() & ~self._told)
        if self._error is not None or not len(rows):
            return
        self._told[rows] = True
        self._thread = threading.get_ident()
        try:
            for row, found in zip(rows.tolist(), self._hypotheses(rows), strict=True):
                self._report(row, found)
        except BaseException as error:  # perhaps of a thread that looks after other searches, too
            self._error = error
        finally:
            self._thread = None

    @property
    def is_reporting_here(self) -> bool:
        """Whether the calling thread runs ``report``."""
        return self._thread == threading.get_ident()

    def end(self) -> None:
        """Raise what ``report`` has raised."""
        if self._error is not None:
            raise self._error
