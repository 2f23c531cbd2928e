"""Random numbers for word vectors: counter-based bits, negative sampling, subsampling.

Every random number is a function of a key and a counter (SplitMix64: Steele, Lea and Flood 2014), so nothing depends on
the order in which a corpus is worked off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import inline

# SplitMix64's constants.
STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@inline
def number(key: Any, counter: Any) -> Any:
    """Return 64 random bits, those that belong to a counter under a key (both uint64)."""
    x = key + counter * STEP
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@inline
def below(bits: Any, n: Any) -> Any:
    """Return a number from 0 to n - 1 out of the lower 32 bits."""
    # Multiply and shift (Lemire 2019): no division, and a bias below n / 2^32.
    return np.int64(((bits & _LOW) * np.uint64(n)) >> _S32)


@inline
def drawn(bits: Any, prob: Any, alias: Any) -> Any:
    """Return a word out of 64 bits by an alias table (Walker 1977)."""
    # The upper half picks a column, the lower one decides between its two words.
    word = np.int64(((bits >> _S32) * np.uint64(len(prob))) >> _S32)
    return word if (bits & _LOW) < np.uint64(prob[word]) else np.int64(alias[word])


@inline
def stays(bits: Any, keep: Any) -> Any:
    """Say whether a word stays whose threshold is ``keep``; takes the upper 32 bits."""
    return (bits >> _S32) <= np.uint64(keep)


def key_of(*parts: int) -> int:
    """Return a 64-bit key for (seed, epoch, ...)."""
    # The same mixing as ``number``, in Python's integers.
    key, whole = 0, (1 << 64) - 1
    for part in parts:
        x = (key ^ (part & whole)) + int(STEP) & whole
        x = (x ^ (x >> 30)) * int(_FIRST) & whole
        x = (x ^ (x >> 27)) * int(_SECOND) & whole
        key = x ^ (x >> 31)
    return key


def keep_thresholds(counts: NDArray[np.int64], sample: float) -> NDArray[np.uint32]:
    """Return (V,) thresholds of ``stays``: a word stays with (sqrt(c / t) + 1) t / c, t = sample * total (word2vec.c).

    With ``sample`` 0 every word stays.
    """
    at_most = (1 << 32) - 1
    if sample <= 0:
        return np.full(len(counts), at_most, np.uint32)
    # t / c; the probability is sqrt(t / c) + t / c, as in the C program, not as in the paper.
    ratio = sample * float(counts.sum()) / np.maximum(counts, 1)
    kept = np.minimum(np.sqrt(ratio) + ratio, 1.0)
    found: NDArray[np.uint32] = np.clip(np.rint(kept * 2.0**32) - 1, 0, at_most).astype(np.uint32)
    return found


def alias_table(counts: NDArray[np.int64], power: float) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return (V,) thresholds and (V,) other words, so that ``drawn`` gives words in proportion to count ** power.

    Built by Vose's method (1991) in O(V).
    """
    # Words that never occur are never drawn, whatever the power (0 ** 0 would be 1).
    weights = np.where(counts > 0, np.maximum(counts, 1).astype(np.float64) ** power, 0.0)
    # Mean 1: heights of the columns.
    share = (weights * (len(counts) / weights.sum())).tolist()
    prob = np.full(len(counts), (1 << 32) - 1, np.uint32)
    alias = np.arange(len(counts), dtype=np.int32)
    # Vose: every column of height 1 is filled up from one word that has more.
    small = [word for word, own in enumerate(share) if own < 1.0]
    large = [word for word, own in enumerate(share) if own >= 1.0]
    while small and large:
        low, high = small.pop(), large[-1]
        prob[low], alias[low] = min(int(share[low] * 2.0**32), (1 << 32) - 1), high
        # What the column of `low` lacks is taken from `high`.
        share[high] -= 1.0 - share[low]
        if share[high] < 1.0:
            small.append(large.pop())
    # What is left over by rounding keeps probability 1 of itself.
    return prob, alias
