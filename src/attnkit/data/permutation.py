"""Shuffling without tables by keyed bijections of 32-bit integers; array types.

The bijections are implemented here: an order depends only on its key, not on NumPy's version or on the machine.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Sizes = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer[Any]]

_PART = 1 << 16  # elements per part: temporaries stay below about 5 MB
_MULTIPLIERS = (0x7FEB352D, 0x846CA68B)  # "lowbias32", Wellons 2018, "Prospecting for hash functions"
_INVERSES = tuple(pow(multiplier, -1, 1 << 32) for multiplier in _MULTIPLIERS)


class FeistelPermutation:
    """Keyed pseudo-random bijection of 32-bit integers; sorting by images shuffles."""

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
        """Return the numbers that have the given images."""
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

    def uniform(self, numbers: Integers) -> Floats:
        """Return a pseudo-random number in [0, 1) for each integer."""
        return self.apply(numbers.astype(np.uint32)).astype(np.float64) / 2**32


def uniform_per_token(purpose: str, key: tuple[int, int], rows: Ids, owner: Ids, columns: Any) -> Floats:
    """Return a number in [0, 1) per token that depends only on key, row and column.

    Args:
        purpose: Name of the draw, part of the key.
        key: (seed, epoch).
        rows: (B,) Number of each row in the corpus.
        owner: (n,) Index into ``rows`` for each token.
        columns: (n,) Position of each token in its row.
    """
    of_rows = FeistelPermutation(f"{purpose} row", *key).apply(rows.astype(np.uint32))
    return FeistelPermutation(f"{purpose} place", *key).uniform(of_rows[owner] + columns.astype(np.uint32))


def parts(n: int) -> Iterator[slice]:
    """Yield slices that cover ``n`` elements and bound the size of temporary arrays."""
    for start in range(0, n, _PART):
        yield slice(start, min(start + _PART, n))


def span(part: slice) -> Words:
    """Return the integers in a slice."""
    return np.arange(part.start, part.stop, dtype=np.uint32)


def shuffled(n: int, permutation: FeistelPermutation) -> Words:
    """Return the integers below ``n`` in shuffled order, using 4 bytes per integer."""
    images = _images(n, permutation)
    images.sort()
    return _invert_in_place(images, permutation)


def subset(n: int, size: int, permutation: FeistelPermutation) -> Words:
    """Return a uniformly random subset of the integers below ``n``, ascending."""
    images = _images(n, permutation)
    if size:
        images.partition(size - 1)
    chosen = _invert_in_place(images[:size], permutation)
    chosen.sort()
    return chosen


def _images(n: int, permutation: FeistelPermutation) -> Words:
    images = np.empty(n, np.uint32)
    for part in parts(n):
        images[part] = permutation.apply(span(part))
    return images


def _invert_in_place(images: Words, permutation: FeistelPermutation) -> Words:
    # All images differ, so sorting and inverting them is an argsort that stores no indices.
    for part in parts(len(images)):
        images[part] = permutation.invert(images[part])
    return images
