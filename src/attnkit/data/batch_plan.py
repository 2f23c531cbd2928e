"""The batch plan of an epoch: length-sorted batches, their shuffle, and their split over ranks.

A plan is cut from one sort: each example's key is its cell in the plane of the two lengths, then a random number that
also holds its index.
"""

import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from attnkit.data.permutation import FeistelPermutation, Ids, Integers, Words, parts, shuffled, span, subset

_CODE_BITS = 11  # codes of 32-bit lengths end at 1663
_N_CODES = 1 << _CODE_BITS
_MAX_EXAMPLES = 1 << 32


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch, about 4 bytes per example."""

    order: Words  #: example indices, batch after batch; neighbours have similar lengths
    starts: Words  #: (n_batches + 1,) start of each batch in ``order``, and the end
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
    """Plan the batches of an epoch: similar lengths together, random tie-breaking and batch order.

    The result depends only on the arguments. Peak extra memory is 12 bytes per example.

    Args:
        src_lengths: (n,) tokens of each source before padding, EOS included.
        tgt_lengths: (n,) the same for the targets.
        seed: with ``epoch``, determines the shuffle.
        epoch: counted from 0.
        max_tokens: maximum padded tokens per batch, source plus target; only a batch of one example may exceed it.
        examples: indices to use, may repeat, as returned by ``draw``; None: every example once.
    """
    n = len(src_lengths) if examples is None else len(examples)
    if len(src_lengths) != len(tgt_lengths) or max_tokens < 1 or n >= _MAX_EXAMPLES:
        raise ValueError(f"{len(src_lengths)} source, {len(tgt_lengths)} target lengths; max_tokens={max_tokens}")
    # Which side comes first, which way the path winds, how wide its bands are and how full the first batch is all move
    # the batches' borders, so that rare lengths, too, get new neighbours in each epoch.
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
        indices = scramble.invert(keys[part].astype(np.uint32))  # the low half of a key
        order[part] = indices if examples is None else examples[indices]
    del keys  # before the batches are shuffled: the peak stays at 12 bytes per example
    starts = _cut(path.longest(cells), borders, max_tokens, first_share=0.5 + full / 2)
    return EpochPlan(order, starts, shuffled(len(starts) - 1, FeistelPermutation("batches", seed, epoch)))


def _code(lengths: Integers) -> Ids:
    """Return small ordered codes: one for each length up to 128, then 64 for each doubling, rounding upwards.

    They bound the number of cells whatever the lengths, at the price of batches up to 1/64 short of the budget.
    """
    below = np.maximum(lengths.astype(np.int64) - 1, 0)
    shift = np.maximum(np.frexp(below.astype(np.float64))[1].astype(np.int64) - 7, 0)
    return (shift << 6) + (below >> shift)


def _longest(codes: Ids) -> Ids:
    """Return the greatest length that has each code."""
    shift: Ids = np.maximum((codes >> 6) - 1, 0)
    return (codes - (shift << 6) + 1) << shift


@dataclass(frozen=True)
class _Path:
    """A path through the plane of the two lengths: band by band of the first, up and down the second in turn."""

    bands: Ids  #: (n_codes,) the band of each code of the first side
    tops: Ids  #: (n_bands,) the greatest code in each band
    turn: int  #: bands of this parity are climbed, the others descended

    def cells(self, first: Ids, second: Ids) -> npt.NDArray[np.uint64]:
        """Return the place on the path of pairs of codes."""
        band = self.bands[first]
        return (band << _CODE_BITS | self._wind(band, second)).astype(np.uint64)

    def longest(self, cells: Ids) -> Ids:
        """Return (n_cells, 2) the greatest lengths of both sides in each cell."""
        band = cells >> _CODE_BITS
        return np.stack([_longest(self.tops[band]), _longest(self._wind(band, cells & (_N_CODES - 1)))], axis=1)

    def _wind(self, band: Ids, second: Ids) -> Ids:
        return np.where(band & 1 == self.turn, second, _N_CODES - 1 - second)


def _length_buckets(codes: Callable[[slice], tuple[Ids, Ids]], n_examples: int, tokens_aside: float) -> tuple[Ids, Ids]:
    """Return the band of each code of the first side, and the greatest code in each band."""
    # Batches that are square in the plane of the two lengths pad least. So a band is closed once its width reaches the
    # standard deviation of its second lengths divided by tokens / tokens_aside. Two to four times max_tokens is within
    # .003 of the best share of real tokens for 2 to 200 thousand pairs in batches of 2 to 16 thousand tokens.
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
    """Return the starts of batches that fill up in order, and the end. Takes time by cells, not by batches."""
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
    """Return the distinct cells of sorted keys and where each begins, with the end."""
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
    """Cut a batch into ``n`` contiguous slices of near-equal cost, none further from the mean than one example.

    ``costs`` belong to ``indices`` place by place. Slices may be empty; together they are the batch.
    """
    ends = np.cumsum(costs, dtype=np.float64)
    middles = ends - np.asarray(costs) / 2
    total = ends[-1] if len(ends) else 0.0
    borders = np.searchsorted(middles, total * np.arange(1, n) / n)
    return np.split(indices, borders)


def draw(n_examples: Sequence[int], weights: Sequence[float], *, seed: int, epoch: int) -> Words:
    """Return the examples that an epoch uses of several corpora laid end to end, in no particular order.

    A weight of 2 gives each example twice, .5 a random half; 1.5 each once and a random half again.
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
