"""Searches in compiled loops while they run: stops, and sentences that are done."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from attnkit.decoding.config import SearchConfig
from attnkit.decoding.hypothesis import NOTHING, Hypothesis, differences
from attnkit.decoding.stopping import StopCheck
from attnkit.kernels import layout
from attnkit.kernels.layout import Results, Sentences

Report = Callable[[int, list[Hypothesis]], None]
"""Function that receives the number of a sentence and its translations, best first."""


class StopWatch:
    """Ends sentences of a running search.

    Loops need no flags for it: they read limits and the shared flag at each step. A limit
    may only fall: results were given room for the first one.
    """

    def __init__(
        self,
        stops: StopCheck,
        limits: NDArray[np.int64],  # (n,), those that the loops read
        lengths: NDArray[np.int64],  # (n, n_results), of the results; -1 until a sentence is done
        shared: NDArray[np.int64],
    ) -> None:
        self._stops, self._limits, self._lengths, self._shared = stops, limits, lengths, shared

    def look(self) -> None:
        """Make the next step the last one of stopped sentences."""
        stopped = self._stops()  # (n,)
        if stopped.any():
            self._limits[stopped] = 0
            # What has not begun would be encoded first: with nothing else to do, all ends at once.
            if bool((stopped | (self._lengths[:, 0] >= 0)).all()):
                self._shared[layout.STOP] = 1


class Reports:
    """Hands on the sentences of a running search that are done.

    The loops may write the parts of a result in any order: one that was there at the last look is whole.
    """

    def __init__(
        self,
        report: Report,
        results: Results,
        sentences: Sentences,
        limits: NDArray[np.int64],  # (n,), of the sentences before any was stopped
        search: SearchConfig,
    ) -> None:
        self._report, self._results, self._sentences, self._limits = report, results, sentences, limits
        self._search = search
        self._seen, self._told = (np.zeros(len(limits), np.bool_) for _ in range(2))

    def look(self) -> None:
        """Report what was done at the last look."""
        done = (self._results.lengths[:, 0] >= 0) & (self._sentences.limits == self._limits)  # (n,)
        (rows,) = np.nonzero(done & self._seen & ~self._told)
        self._seen = done
        if len(rows):
            self._told[rows] = True
            found = hypotheses_of(self._results, self._sentences, self._search, rows)
            for row, hypotheses in zip(rows.tolist(), found, strict=True):
                self._report(row, hypotheses)


def hypotheses_of(
    results: Results, sentences: Sentences, search: SearchConfig, rows: NDArray[np.int64] | slice = slice(None)
) -> Iterator[list[Hypothesis]]:
    """Yield the hypotheses of each sentence, or of those in some rows."""
    has_scores = search.scores or search.token_scores or search.beam_size > 1
    # Lists: taking single items of arrays would take as long as a tenth of the search.
    columns = (results.begins, sentences.limits, results.lengths, results.log_probs, results.steps, results.finished)
    for begin, limit, *of_ranks in zip(*(column[rows].tolist() for column in columns), strict=True):
        found = []
        for rank, (n, log_prob, n_steps, finished) in enumerate(zip(*of_ranks, strict=True)):
            if n >= 0:
                first = begin + rank * limit
                ids = results.ids[first : first + n].tolist()
                log_prob = log_prob if has_scores else math.nan
                score = log_prob / n_steps**search.length_penalty
                sums = results.token_scores[first : first + n_steps] if search.token_scores else None
                own = None if sums is None else differences(sums)
                found.append(Hypothesis(ids, score, log_prob, None, bool(finished), own))
        # Only a model whose numbers are not finite leaves a sentence without any.
        yield found or [NOTHING]
