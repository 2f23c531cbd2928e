"""Evaluate on development sets: greedy search over them, and the choice of sample rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnkit.data.loader import Batching, make_batches
from attnkit.decoding.config import SearchConfig
from attnkit.engine.searching import LineSegment, SearchBackend, SearchJob
from attnkit.engine.task import Stop, until_stopped


def greedy_ids(
    searcher: SearchBackend, parts: Sequence[LineSegment], config: SearchConfig, stop: Stop | None
) -> list[list[int]]:
    """Return the ids of each part's best hypothesis.

    Raises:
        EvaluationCancelled: A stop was requested between two batches.
    """
    batches = make_batches([len(part.ids) for part in parts], Batching())
    # Lazy, so that a requested stop is noticed between any two batches.
    requested = ([parts[i] for i in batch] for batch in until_stopped(stop, batches))
    found: list[list[int]] = [[] for _ in parts]
    results = searcher.search_all(requested, SearchJob(config))
    for batch, hypotheses in zip(batches, results, strict=True):
        for i, best in zip(batch, hypotheses, strict=True):
            found[i] = best[0].ids
    return found


def sample_indices(n_rows: int, n_samples: int) -> NDArray[np.int64]:
    """Return the indices of at most ``n_samples`` rows, spread evenly from the first to the last."""
    return np.linspace(0, n_rows - 1, min(n_samples, n_rows)).astype(int)
