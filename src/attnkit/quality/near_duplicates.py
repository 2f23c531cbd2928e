"""Pairs that repeat an earlier pair but for a word or two.

Two pairs are near-duplicates if they share most of their word bigrams, both sides taken together, and some of these
are rare: sentences that are merely alike share the bigrams that all sentences of a corpus have. Their numbers must be
the same: texts that differ in a number say different things.

Candidates are found by bottom sketches (Broder 1997, On the Resemblance and Containment of Documents): the ``SKETCH``
smallest hashes of a pair's rare bigrams are a random sample of them. Two pairs with two hashes of their sketches in
common are compared in full. Of repeats with a word changed or added this finds nearly all.

Letters: N pairs, W words, M bigrams of all pairs, C candidates.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from attnkit.quality.lines import Ints

MIN_SHARED = 0.65  #: share of the bigrams of two pairs, of both together, that they have in common (Jaccard)
MIN_RARE = 4  #: bigrams in common that few pairs have
RARE = 1000  #: a bigram is rare if at most one in so many pairs has it,
FEW, MANY = 5, 50  #: which are no fewer and no more pairs than these
MIN_BIGRAMS = 16  #: of both sides together; shorter pairs coincide without having been copied
SKETCH = 5  #: smallest hashes of a pair
MAX_ALIKE = 16  #: pairs with the same two hashes; more are a phrase of the corpus, not copies
MAX_EARLIER = 3  #: earlier pairs that a pair is compared with for the same two hashes
MAX_CHARACTERS = 2000  #: of a line; the rest is left out
BATCH = 1024  #: pairs hashed together
MAX_PAIRS = 1 << 21  #: pairs that are compared, some 130 bytes each; the rest is left out
_LINE_BITS = 24  # of a key that hold the number of a pair
_COUNT_BITS = 23  # of a hash, to count how many pairs have it
_COUNT_SHIFT = np.uint32(32 - _COUNT_BITS)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_BASE = np.uint64(0x100000001B3)
_NEWLINE = 10
# Bytes of a text in lower case: spaces and marks are 0.
_PLAIN = bytes(n if n > 127 or chr(n).isalnum() or n == _NEWLINE else 0 for n in range(256))

Hashes = NDArray[np.uint32]


class NearDuplicateFinder:
    """Finder of pairs that nearly repeat earlier ones."""

    def __init__(self) -> None:
        self._hashes: list[Hashes] = []  # of bigrams, ascending within a pair
        self._counts: list[NDArray[np.int32]] = []
        self._numbers: list[NDArray[np.uint32]] = []  # a hash of the words with digits, in any order
        self.n_pairs = 0

    def add(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Take the next pairs of lines; those beyond ``MAX_PAIRS`` are left out."""
        pairs = pairs[: MAX_PAIRS - self.n_pairs]
        for begin in range(0, len(pairs), BATCH):
            self._add(pairs[begin : begin + BATCH])

    def _add(self, pairs: Sequence[tuple[str, str]]) -> None:
        sides = [bigrams([pair[side] for pair in pairs], side) for side in (0, 1)]
        self._numbers.append((sides[0][1] + sides[1][1]).astype(np.uint32))
        keys = np.concatenate([found for found, _ in sides])
        keys.sort()  # by pair, then by hash; equal bigrams of a pair count once
        is_first = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
        keys = keys[is_first]
        owner = (keys >> np.uint64(32)).astype(np.int64)
        self._hashes.append(keys.astype(np.uint32))
        self._counts.append(np.bincount(owner, minlength=len(pairs)).astype(np.int32))
        self.n_pairs += len(pairs)

    def repeats(self, known: Ints | None = None) -> Ints:
        """Return the positions (n,) of pairs that nearly repeat an earlier one.

        They ascend. Pairs of ``known`` repeat others in another way; they are compared with none.
        """
        found = np.zeros(self.n_pairs, np.bool_)
        if not self._hashes:
            return np.flatnonzero(found)
        hashes, counts = np.concatenate(self._hashes), np.concatenate(self._counts).astype(np.int64)  # (M,), (N,)
        begins = np.cumsum(counts) - counts
        self._hashes = [hashes]  # not twice in memory
        self._counts = [counts.astype(np.int32)]
        numbers = np.concatenate(self._numbers)
        # How many pairs have a bigram, and those that share its place in the table: never too few.
        table = np.bincount(hashes >> _COUNT_SHIFT, minlength=1 << _COUNT_BITS)
        is_rare = table <= min(max(FEW, self.n_pairs // RARE), MANY)
        rare = is_rare[hashes >> _COUNT_SHIFT]
        n_rare = np.diff(np.concatenate([[0], np.cumsum(rare)])[np.append(begins, len(hashes))])
        is_compared = counts >= MIN_BIGRAMS
        if known is not None:
            is_compared[known[known < self.n_pairs]] = False
        later, earlier = _candidates(hashes[rare], np.cumsum(n_rare) - n_rare, n_rare * is_compared)
        for first in range(0, len(later), BATCH):
            i, j = later[first : first + BATCH], earlier[first : first + BATCH]
            which, shared = _shared(hashes, begins, counts, i, j)
            n_shared = np.bincount(which, minlength=len(i))
            n_shared_rare = np.bincount(which[is_rare[shared >> _COUNT_SHIFT]], minlength=len(i))
            is_near = n_shared >= MIN_SHARED * (counts[i] + counts[j] - n_shared)
            found[i[is_near & (n_shared_rare >= MIN_RARE) & (numbers[i] == numbers[j])]] = True
        return np.flatnonzero(found)


def _shared(hashes: Hashes, begins: Ints, counts: Ints, i: Ints, j: Ints) -> tuple[Ints, Hashes]:
    """Return the bigrams that pairs i and j (C,) share, and the candidate of each."""
    keys = []
    for lines in (i, j):
        n = counts[lines]
        place = np.arange(n.sum()) + np.repeat(begins[lines] - (np.cumsum(n) - n), n)
        keys.append(np.repeat(np.arange(len(lines), dtype=np.uint64), n) << np.uint64(32) | hashes[place])
    both = np.concatenate(keys)
    both.sort()
    shared = both[1:][both[1:] == both[:-1]]  # within a pair, all are distinct
    return (shared >> np.uint64(32)).astype(np.int64), shared.astype(np.uint32)


def _candidates(hashes: Hashes, begins: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Return later and earlier pairs (C,) with two hashes of their sketches in common.

    ``counts`` (N,) of the hashes begin at ``begins`` in an array of all, ascending within each pair.
    """
    n_bits = np.uint64(_LINE_BITS)
    of_places: list[NDArray[np.uint64]] = []
    for a, b in combinations(range(SKETCH), 2):
        lines = np.flatnonzero(counts > max(b, MIN_RARE - 1))
        one, other = hashes[begins[lines] + a].astype(np.uint64), hashes[begins[lines] + b]
        mixed = (one * _MIX + other) * _MIX
        of_places.append((mixed >> n_bits << n_bits) | lines.astype(np.uint64))
    keys = np.concatenate(of_places)
    keys.sort()
    groups = keys >> n_bits
    numbers = (keys - (groups << n_bits)).astype(np.int64)
    sizes = np.diff(np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1], [True]])))
    is_small = np.repeat(sizes <= MAX_ALIKE, sizes) if len(keys) else np.zeros(0, np.bool_)
    found = []
    for distance in range(1, MAX_EARLIER + 1):
        same = np.flatnonzero((groups[distance:] == groups[:-distance]) & is_small[distance:])
        found.append((numbers[same + distance] << _LINE_BITS) | numbers[same])
    both = np.unique(np.concatenate(found))
    return both >> _LINE_BITS, both & ((1 << _LINE_BITS) - 1)


def bigrams(lines: Sequence[str], side: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the word bigrams (M,) of lines, and a hash of the numbers of each (n,).

    A bigram is the number of its line and a hash of 32 bits.

    Case and ASCII marks do not count, the ends of a line are words, and so is every Chinese or Japanese character.
    """
    text = "\n".join(["", *[line[:MAX_CHARACTERS] for line in lines], ""]).lower()
    codes = np.frombuffer(text.encode("utf-8", "surrogatepass").translate(_PLAIN), np.uint8)  # (B,)
    is_end = codes == _NEWLINE
    starts = codes > 0
    starts[1:] &= (codes[:-1] == 0) | is_end[:-1]
    starts |= is_end
    if not text.isascii():
        is_character = (codes >= 0xE3) & (codes <= 0xE9)  # the first of three bytes: U+3000 to U+9FFF
        starts |= is_character
        starts[3:] |= is_character[:-3] & (codes[3:] > 0)
    begins = np.flatnonzero(starts)  # (W,)
    # The hash of a word does not depend on its place: what its place multiplies is divided again.
    powers, inverses = _powers(len(codes))
    words = np.add.reduceat(codes * powers, begins) * inverses[begins]
    ends = is_end[begins]
    owner = np.cumsum(ends).astype(np.uint64)  # from 1; the end of a line is also the beginning of the next one
    pairs = ((words[:-1] * _MIX) ^ (words[1:] + np.uint64(side + 1))) * _MIX
    pairs = (pairs ^ pairs >> np.uint64(29)) * _MIX
    kept = ~(ends[:-1] & ends[1:])  # an empty line has no bigrams
    found: NDArray[np.uint64] = (((owner[:-1] - np.uint64(1)) << np.uint64(32)) | pairs >> np.uint64(32))[kept]
    is_digit = (codes >= ord("0")) & (codes <= ord("9"))
    has_digit = np.add.reduceat(is_digit.astype(np.int64), begins) > 0
    of_line = (owner[has_digit] - np.uint64(1)).astype(np.int64)
    numbers = np.zeros(len(lines), np.uint64)
    np.add.at(numbers, of_line, (words[has_digit] * _MIX) >> np.uint64(32))
    return found, numbers


@functools.cache
def _table(n: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    ones = np.ones(n, np.uint64)
    ones[1:] = _BASE
    powers = np.cumprod(ones)  # wraps, as hashes do
    ones[1:] = np.uint64(pow(int(_BASE), -1, 1 << 64))
    inverses: NDArray[np.uint64] = np.cumprod(ones)
    return powers, inverses


def _powers(n: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first n powers of the base, and their inverses."""
    powers, inverses = _table(1 << max(16, (n - 1).bit_length()))
    return powers[:n], inverses[:n]
