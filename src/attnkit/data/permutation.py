"""Shuffling without tables: keyed bijections of the 32-bit numbers, and arrays handled part by part.

Written out here, so that an order depends on its key alone: not on numpy's version, the machine or any earlier call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]

_PART = 1 << 16  # elements handled at once: all temporaries stay below some 5 MB
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B)  # "lowbias32", Wellons 2018, "Prospecting for hash functions"
_INVERSES = tuple(pow(multiplier, -1, 1 << 32) for multiplier in _MULTIPLIERS)


class FeistelPermutation:
    """A pseudo-random bijection of the 32-bit numbers, chosen by a key; sorting by it shuffles, its inverse undoes it.

    Needs no table, which is what keeps a plan's memory below that of a stored permutation.
    """

    def __init__(self, purpose: str, *key: int) -> None:
        digest = hashlib.sha256(":".join([purpose, *map(str, key)]).encode()).digest()
        self._words = np.frombuffer(digest[:12], dtype="<u4").astype(np.uint32)

    def apply(self, numbers: Words) -> Words:
        """Return the images of ``numbers``."""
        first, second = (np.uint32(multiplier) for multiplier in _MULTIPLIERS)
        mixed: Words = numbers ^ self._words[0]
        for word in self._words[1:]:
            mixed ^= mixed >> np.uint32(16)
            mixed *= first
            mixed ^= mixed >> np.uint32(15)
            mixed *= second
            mixed ^= mixed >> np.uint32(16)
            mixed ^= word
        return mixed

    def invert(self, images: Words) -> Words:
        """Return the numbers whose images these are."""
        first, second = (np.uint32(inverse) for inverse in _INVERSES)
        mixed = images.copy()
        for word in self._words[:0:-1]:
            mixed ^= word
            mixed ^= mixed >> np.uint32(16)
            mixed *= second
            mixed ^= (mixed >> np.uint32(15)) ^ (mixed >> np.uint32(30))
            mixed *= first
            mixed ^= mixed >> np.uint32(16)
        mixed ^= self._words[0]
        return mixed


def parts(n: int) -> Iterator[slice]:
    """Yield slices that cover ``n`` elements, so that no temporary grows with ``n``."""
    for start in range(0, n, _PART):
        yield slice(start, min(start + _PART, n))


def span(part: slice) -> Words:
    """Return the numbers that a slice covers."""
    return np.arange(part.start, part.stop, dtype=np.uint32)


def random_uint32(keys: npt.NDArray[np.uint64]) -> Words:
    """Return the low 32 bits of ``keys`` in their own memory, giving back the other half of it."""
    n = len(keys)
    words = keys.view(np.uint32)
    for part in parts(n):
        words[part] = (keys[part] & np.uint64((1 << 32) - 1)).astype(np.uint32)
    del words
    # No view is left, but under a tracer or debugger numpy counts references of theirs.
    keys.resize((n + 1) // 2, refcheck=False)
    return keys.view(np.uint32)[:n]


def shuffled(n: int, scramble: FeistelPermutation) -> Words:
    """Return the numbers below ``n`` in an order that ``scramble`` chooses."""
    keys = np.empty(n, np.uint64)
    for part in parts(n):
        numbers = span(part)
        keys[part] = scramble.apply(numbers).astype(np.uint64) << np.uint64(32) | numbers
    keys.sort()
    return random_uint32(keys)


def subset(n: int, size: int, scramble: FeistelPermutation) -> Words:
    """Return ``size`` of the numbers below ``n`` in rising order, every choice being equally likely."""
    if not size:
        return np.empty(0, np.uint32)
    images = np.concatenate([scramble.apply(span(part)) for part in parts(n)])
    images.partition(size - 1)
    chosen = [span(part)[scramble.apply(span(part)) <= images[size - 1]] for part in parts(n)]
    return np.concatenate(chosen)
