"""Filters of line pairs: duplicates, blank lines and odd length ratios."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnkit.text.config import CheckConfig
from attnkit.text.lines import is_blank
from attnkit.text.parallel import read_parallel

Pair = tuple[str, str]
Fault = Literal["blank", "blank_source", "blank_target", "odd_ratio"]  #: reasons to drop a pair from training
_BATCH = 1 << 16  # items hashed at once
Positions = NDArray[np.int64]  #: ascending indices of items, from 0


class DuplicateFinder:
    """Finder of duplicate items by their hashes, which take 8 bytes each."""

    def __init__(self) -> None:
        self._hashes = array("q")

    def add(self, item: object) -> None:
        """Record the hash of the next item; string hashes are valid in one process only."""
        self._hashes.append(hash(item))

    def repeats(self) -> Positions:
        """Return the positions of items that repeat an earlier item."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order = np.argsort(hashes, kind="stable")  # stable: equal hashes stay in file order
        return np.sort(order[1:][hashes[order[1:]] == hashes[order[:-1]]])

    def frequent(self, least: int) -> Positions:
        """Return the positions of items that occur at least ``least`` times."""
        hashes = np.frombuffer(self._hashes, dtype=np.int64)
        order = np.argsort(hashes)
        ordered = hashes[order]
        n_equal = np.diff(np.flatnonzero(np.diff(ordered)) + 1, prepend=0, append=len(ordered))
        return np.sort(order[np.repeat(n_equal >= least, n_equal)])

    def overlap(self, others: Iterable[object]) -> Positions:
        """Return the positions of items that occur in ``others``, which is iterated once."""
        known, inverse = np.unique(np.frombuffer(self._hashes, dtype=np.int64), return_inverse=True)
        in_others = np.zeros(len(known), dtype=np.bool_)
        remaining = iter(others)
        while len(known) and (batch := [hash(item) for item in islice(remaining, _BATCH)]):
            hashes = np.array(batch, dtype=np.int64)
            nearest = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            in_others[nearest[known[nearest] == hashes]] = True
        return np.flatnonzero(in_others[inverse])


N_SAMPLED = 10_000  #: number of first pairs that determine the usual length ratio
PADDING = 16  #: characters added to both lengths, so that short lines are not flagged by chance


def usual_ratio(pairs: Iterable[Pair]) -> float:
    """Return the median ratio of source to target length in characters.

    ``PADDING`` is added to both.
    """
    ratios = [(len(src) + PADDING) / (len(tgt) + PADDING) for src, tgt in pairs if not (is_blank(src) or is_blank(tgt))]
    return median(ratios) if ratios else 1.0


def find_fault(src: str, tgt: str, usual_ratio: float, max_ratio: float | None) -> Fault | None:
    """Return the reason to drop a pair, or None.

    Lengths are characters plus ``PADDING``. ``max_ratio`` is the maximum factor of deviation; None: no limit.
    """
    if is_blank(src):
        return "blank" if is_blank(tgt) else "blank_source"
    if is_blank(tgt):
        return "blank_target"
    ratio = (len(src) + PADDING) / (len(tgt) + PADDING) / usual_ratio
    return None if max_ratio is None or 1 / max_ratio <= ratio <= max_ratio else "odd_ratio"


class LengthRatioFilter:
    """Line pairs, each with a reason to drop it or None; can be iterated once."""

    def __init__(self, pairs: Iterable[Pair], max_ratio: float | None) -> None:
        """Determine the usual ratio of source to target length from the first pairs."""
        remaining = iter(pairs)
        first = list(islice(remaining, N_SAMPLED))
        self.usual_ratio = usual_ratio(first)
        self._pairs, self._max_ratio = chain(first, remaining), max_ratio

    def __iter__(self) -> Iterator[tuple[Pair, Fault | None]]:
        for src, tgt in self._pairs:
            yield (src, tgt), find_fault(src, tgt, self.usual_ratio, self._max_ratio)


@dataclass
class PairDrops:
    """Numbers of pairs dropped from training, by reason."""

    blank: int = 0  #: both lines are blank
    blank_source: int = 0
    blank_target: int = 0
    odd_ratio: int = 0  #: the length ratio in characters deviates too far from the usual ratio


def clean_pairs(
    src_path: Path, tgt_path: Path, drops: PairDrops, config: CheckConfig | None = None
) -> Iterator[tuple[int, Pair]]:
    """Yield usable pairs with their 0-based line numbers; count others in ``drops``.

    Lengths in tokens are not checked, and duplicates are kept. Raises ``DataError`` as ``read_parallel`` does.
    """
    pairs = LengthRatioFilter(read_parallel(src_path, tgt_path), (config or CheckConfig()).max_ratio)
    for line, (pair, fault) in enumerate(pairs):
        if fault is None:
            yield line, pair
        else:
            setattr(drops, fault, getattr(drops, fault) + 1)
