"""Epoch plans: length-sorted batches, shuffled and split over ranks.

Building a plan takes a single sort. The sort key of an example is its cell in a grid of source and target lengths,
followed by its index under a pseudo-random permutation.
"""

import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attnkit.data.permutation import FeistelPermutation, Ids, Integers, Words, parts, shuffled, span, subset

_CODE_BITS = 11  # codes of 32-bit lengths are at most 1663
_N_CODES = 1 << _CODE_BITS
_MAX_EXAMPLES = 1 << 32


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch, in about 4 bytes per example."""

    order: Words  #: example indices of all batches, concatenated; neighbours have similar lengths
    starts: Words  #: (n_batches + 1,) start of each batch in ``order``, followed by the end
    shuffled: Words  #: (n_batches,) the batch at each position of the epoch

    @property
    def n_batches(self) -> int:
        """Number of batches in the epoch."""
        return len(self.shuffled)

    def batch(self, i: int) -> Ids:
        """Return the example indices of batch ``i`` of the epoch, in constant time."""
        if not 0 <= i < self.n_batches:
            raise IndexError(f"batch {i} of {self.n_batches}")
        place = int(self.shuffled[i])
        return self.order[int(self.starts[place]) : int(self.starts[place + 1])].astype(np.int64)


def plan_epoch(
    src_lengths: Integers,
    tgt_lengths: Integers,
    *,
    seed: int,
    epoch: int,
    max_tokens: int,
    examples: Words | None = None,
) -> EpochPlan:
    """Plan an epoch: batches of similar lengths, random tie-breaking and batch order.

    The result depends only on the arguments. Peak extra memory is 12 bytes per example.

    Args:
        src_lengths: (n,) Tokens of each source before padding, EOS included.
        tgt_lengths: (n,) Tokens of each target, likewise.
        seed: Random seed of the shuffle, together with ``epoch``.
        epoch: Number of the epoch, from 0.
        max_tokens: Maximum padded tokens per batch, source plus target; only a batch of one example may exceed it.
        examples: Indices to use, possibly repeated, as returned by ``draw``; None: every example once.
    """
    n = len(src_lengths) if examples is None else len(examples)
    if len(src_lengths) != len(tgt_lengths) or max_tokens < 1 or n >= _MAX_EXAMPLES:
        raise ValueError(f"{len(src_lengths)} source, {len(tgt_lengths)} target lengths; max_tokens={max_tokens}")
    # The order of the sides, the direction of the path, the width of its bands and the size of the first batch are
    # random. They move the batch boundaries, so rare lengths, too, get new neighbours in each epoch.
    swap, turn, wide, full = FeistelPermutation("coins", seed, epoch).uniform(np.arange(4)).tolist()
    first, second = (tgt_lengths, src_lengths) if swap < 0.5 else (src_lengths, tgt_lengths)

    def codes(part: slice) -> tuple[Ids, Ids]:
        chosen = part if examples is None else examples[part]
        return _code(first[chosen]), _code(second[chosen])

    path = _Path(*_length_buckets(codes, n, max_tokens * (2 + 2 * wide)), turn=int(turn < 0.5))
    scramble = FeistelPermutation("order", seed, epoch)
    keys = np.empty(n, np.uint64)
    for part in parts(n):
        keys[part] = path.cells(*codes(part)) << np.uint64(32) | scramble.apply(span(part))
    keys.sort()
    cells, borders = _runs(keys)
    order = np.empty(n, np.uint32)
    for part in parts(n):
        indices = scramble.invert(keys[part].astype(np.uint32))  # the low half of each key
        order[part] = indices if examples is None else examples[indices]
    del keys  # freed before shuffling, to keep the peak at 12 bytes per example
    starts = _cut(path.longest(cells), borders, max_tokens, first_share=0.5 + full / 2)
    return EpochPlan(order, starts, shuffled(len(starts) - 1, FeistelPermutation("batches", seed, epoch)))


def _code(lengths: Integers) -> Ids:
    """Quantize lengths to ordered codes: exact up to 128, then 64 per doubling.

    Lengths are rounded up. The codes bound the number of cells; batches may be up to 1/64 short of the budget.
    """
    below = np.maximum(lengths.astype(np.int64) - 1, 0)
    shift = np.maximum(np.frexp(below.astype(np.float64))[1].astype(np.int64) - 7, 0)
    return (shift << 6) + (below >> shift)


def _longest(codes: Ids) -> Ids:
    """Return the maximum length of each code."""
    shift: Ids = np.maximum((codes >> 6) - 1, 0)
    return (codes - (shift << 6) + 1) << shift


@dataclass(frozen=True)
class _Path:
    """A serpentine path through the plane of the two lengths, band by band."""

    bands: Ids  #: (n_codes,) band of each code of the first side
    tops: Ids  #: (n_bands,) maximum code in each band
    turn: int  #: parity of the bands in which second lengths ascend; in the others they descend

    def cells(self, first: Ids, second: Ids) -> npt.NDArray[np.uint64]:
        """Return the position on the path of each pair of codes."""
        band = self.bands[first]
        return (band << _CODE_BITS | self._wind(band, second)).astype(np.uint64)

    def longest(self, cells: Ids) -> Ids:
        """Return the maximum lengths of both sides in each cell, (n_cells, 2)."""
        band = cells >> _CODE_BITS
        return np.stack([_longest(self.tops[band]), _longest(self._wind(band, cells & (_N_CODES - 1)))], axis=1)

    def _wind(self, band: Ids, second: Ids) -> Ids:
        return np.where(band & 1 == self.turn, second, _N_CODES - 1 - second)


def _length_buckets(codes: Callable[[slice], tuple[Ids, Ids]], n_examples: int, tokens_aside: float) -> tuple[Ids, Ids]:
    """Return the band of each first-side code and the maximum code of each band."""
    # Batches that are square in the plane of the two lengths have the least padding. A band is therefore closed when
    # its width reaches the standard deviation of its second lengths times tokens_aside / tokens. With tokens_aside at 2
    # to 4 * max_tokens, the share of real tokens is within .003 of the best (2k-200k pairs, batches of 2k-16k tokens).
    n, sums, squares, tokens = np.zeros((4, _N_CODES))
    for part in parts(n_examples):
        first, second = codes(part)
        n += np.bincount(first, minlength=_N_CODES)
        sums += np.bincount(first, second, _N_CODES)
        squares += np.bincount(first, second**2, _N_CODES)
        tokens += np.bincount(first, _longest(first) + _longest(second), _N_CODES)
    bands = np.empty(_N_CODES, np.int64)
    tops = np.zeros(_N_CODES, np.int64)
    band, width, total = 0, 0, np.zeros(4)
    for code in range(_N_CODES):
        bands[code] = band
        total += (n[code], sums[code], squares[code], tokens[code])
        width += bool(total[0])
        if not n[code]:
            continue
        tops[band] = code
        spread = max(0.3, np.sqrt(max(0.0, total[2] / total[0] - (total[1] / total[0]) ** 2)))
        if width * total[3] >= spread * tokens_aside:
            band, width, total = band + 1, 0, np.zeros(4)
    return bands, tops


def _cut(costs: Ids, borders: Ids, max_tokens: int, first_share: float) -> Words:
    """Fill batches cell by cell along the path; return their starts and the end."""
    starts = array.array("I", [0])
    budget = int(max_tokens * first_share)
    widest, filled = (0, 0), 0
    for (first, second), begin, end in zip(costs.tolist(), borders[:-1].tolist(), borders[1:].tolist(), strict=True):
        both = max(widest[0], first), max(widest[1], second)
        taken = min(end - begin, budget // sum(both) - filled)
        if taken > 0 or not filled:
            taken = max(taken, 1)
            widest, filled, begin = both, filled + taken, begin + taken
        if begin < end:
            size = max(1, max_tokens // (first + second))
            starts.extend(range(begin, end, size))
            budget, widest, filled = max_tokens, (first, second), end - starts[-1]
    if borders[-1]:
        starts.append(int(borders[-1]))
    return np.frombuffer(starts, dtype=np.uint32)


def _runs(keys: npt.NDArray[np.uint64]) -> tuple[Ids, Ids]:
    """Return the distinct cells of sorted keys, and the start of each plus the end."""
    cells, begins, last = [], [], -1
    for part in parts(len(keys)):
        high = (keys[part] >> np.uint64(32)).astype(np.int64)
        new = np.flatnonzero(np.diff(high, prepend=last))
        cells.append(high[new])
        begins.append(new + part.start)
        last = int(high[-1])
    begins.append(np.array([len(keys)]))
    return np.concatenate([*cells, np.empty(0, np.int64)]), np.concatenate(begins)


def split(indices: Ids, costs: Integers, n: int) -> list[Ids]:
    """Split a batch into ``n`` contiguous slices of near-equal cost.

    The cost of a slice is within one example of the mean. ``costs`` are aligned with ``indices``. Slices may be empty.
    """
    ends = np.cumsum(costs, dtype=np.float64)
    middles = ends - np.asarray(costs) / 2
    total = ends[-1] if len(ends) else 0.0
    borders = np.searchsorted(middles, total * np.arange(1, n) / n)
    return np.split(indices, borders)


def draw(n_examples: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> Words:
    """Draw the examples of an epoch from several concatenated corpora, unordered.

    A weight of 2 uses each example twice, 0.5 a random half, and 1.5 each example once plus a random half.
    """
    drawn, begin = [], 0
    for corpus, (n, weight) in enumerate(zip(n_examples, weights, strict=True)):
        whole = int(weight)
        extra = round((weight - whole) * n)
        everything = np.arange(begin, begin + n, dtype=np.uint32)
        drawn += [everything] * whole
        if extra:
            drawn.append(everything[subset(n, extra, FeistelPermutation("draw", seed, epoch, corpus))])
        begin += n
    return np.concatenate(drawn) if drawn else np.empty(0, np.uint32)
