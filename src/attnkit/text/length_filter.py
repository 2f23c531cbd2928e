"""Whether a pair of lines can be trained on, by its characters alone. Knows no files and no tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from statistics import median
from typing import Literal

Pair = tuple[str, str]
Fault = Literal["blank", "blank_source", "blank_target", "odd_ratio"]

SAMPLED = 10_000
"""Pairs at the beginning from which the usual ratio of lengths is taken."""
PADDING = 16
"""Characters added to both lengths, so that short lines are not judged by chance."""


@dataclass(frozen=True)
class LengthRatioFilter:
    """Knows what ratio of lengths is usual in a corpus: 1 for related languages, 10 for summaries."""

    usual_ratio: float
    """Source over target characters, ``PADDING`` added to each."""
    max_ratio: float | None
    """How many times more or less than usual is too much; None: nothing is."""

    def fault(self, src: str, tgt: str) -> Fault | None:
        """Return why a pair cannot be trained on, None if it can."""
        if not src or src.isspace():
            return "blank" if not tgt or tgt.isspace() else "blank_source"
        if not tgt or tgt.isspace():
            return "blank_target"
        if self.max_ratio is None:
            return None
        ratio = (len(src) + PADDING) / (len(tgt) + PADDING) / self.usual_ratio
        return None if 1 / self.max_ratio <= ratio <= self.max_ratio else "odd_ratio"


def fit_length_filter(pairs: Iterable[Pair], max_ratio: float | None) -> tuple[Iterator[Pair], LengthRatioFilter]:
    """Return the same pairs, and a judge that has read the first of them."""
    remaining = iter(pairs)
    first = list(islice(remaining, SAMPLED))
    ratios = [(len(src) + PADDING) / (len(tgt) + PADDING) for src, tgt in first if src.strip() and tgt.strip()]
    return chain(first, remaining), LengthRatioFilter(median(ratios) if ratios else 1.0, max_ratio)
