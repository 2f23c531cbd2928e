"""Sampling of word2vec: random bits, subsampling, windows, noise, Huffman tree.

Every random number is a function of a key and a counter (SplitMix64: Steele, Lea and Flood 2014), so results do not
depend on the order in which a corpus is processed.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import inline

Ints = NDArray[np.int64]

# SplitMix64's constants.
STEP = np.uint64(0x9E3779B97F4A7C15)
MULTIPLIERS = _FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@inline
def random_bits(key: Any, counter: Any) -> Any:
    """Return the 64 random bits of a counter under a key (both uint64)."""
    x = key + counter * STEP
    x = (x ^ (x >> _S30)) * _FIRST
    x = (x ^ (x >> _S27)) * _SECOND
    return x ^ (x >> _S31)


@inline
def below(bits: Any, n: Any) -> Any:
    """Return an integer from 0 to n - 1, computed from the lower 32 bits."""
    # Multiply and shift (Lemire 2019): no division, and a bias below n / 2^32.
    return np.int64(((bits & _LOW) * np.uint64(n)) >> _S32)


@inline
def drawn(bits: Any, prob: Any, alias: Any) -> Any:
    """Draw a word with an alias table (Walker 1977) from 64 random bits."""
    # The upper half picks a column, the lower one decides between its two words.
    word = np.int64(((bits >> _S32) * np.uint64(len(prob))) >> _S32)
    return word if (bits & _LOW) < np.uint64(prob[word]) else np.int64(alias[word])


@inline
def stays(bits: Any, keep: Any) -> Any:
    """Return whether subsampling keeps a word of threshold ``keep`` (upper 32 bits)."""
    return (bits >> _S32) <= np.uint64(keep)


# The decorated functions are compiled for scalars; these plain Python versions take arrays.
array_bits, _below, _stays = (getattr(function, "py_func", function) for function in (random_bits, below, stays))


def key_of(*parts: int) -> int:
    """Return a 64-bit key for (seed, epoch, ...)."""
    key = np.zeros(1, np.uint64)
    for part in parts:
        key = array_bits(key ^ np.uint64(part & ((1 << 64) - 1)), np.uint64(1))
    return int(key[0])


def keep_thresholds(counts: NDArray[np.int64], sample: float) -> NDArray[np.uint32]:
    """Return the subsampling thresholds (V,) of ``stays``, as in word2vec.c.

    A word is kept with probability (sqrt(c / t) + 1) t / c, t = sample * total. With ``sample`` 0, every word is kept.
    """
    at_most = (1 << 32) - 1
    if sample <= 0:
        return np.full(len(counts), at_most, np.uint32)
    # t / c; the probability is sqrt(t / c) + t / c, as in the C program, not as in the paper.
    ratio = sample * float(counts.sum()) / np.maximum(counts, 1)
    kept = np.minimum(np.sqrt(ratio) + ratio, 1.0)
    return np.asarray(np.clip(np.rint(kept * 2.0**32) - 1, 0, at_most), np.uint32)


def alias_table(counts: NDArray[np.int64], power: float) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Build an alias table, thresholds (V,) and aliases (V,), in O(V) (Vose 1991).

    Words are drawn in proportion to count ** power.
    """
    # Words that never occur are never drawn, whatever the power (0 ** 0 would be 1).
    weights = np.where(counts > 0, np.maximum(counts, 1).astype(np.float64) ** power, 0.0)
    # Mean 1: heights of the columns.
    share = (weights * (len(counts) / weights.sum())).tolist()
    prob = np.full(len(counts), (1 << 32) - 1, np.uint32)
    alias = np.arange(len(counts), dtype=np.int32)
    # Vose: each column below height 1 is filled up from one word above it.
    small = [word for word, own in enumerate(share) if own < 1.0]
    large = [word for word, own in enumerate(share) if own >= 1.0]
    while small and large:
        low, high = small.pop(), large[-1]
        prob[low], alias[low] = min(int(share[low] * 2.0**32), (1 << 32) - 1), high
        # What the column of `low` lacks is taken from `high`.
        share[high] -= 1.0 - share[low]
        if share[high] < 1.0:
            small.append(large.pop())
    # Columns left over by rounding keep their own word with probability 1.
    return prob, alias


@inline
def windows(text: Any, piece: Any, settings: Any, keep: Any) -> Any:
    """Return (words, at, left, right, first, last) of the subsampled piece of a text.

    ``piece`` is (begin, end, key), ``settings`` (window, dynamic). words[first:last] are the centre words, the others
    are context of the outer windows. The context of words[i] is words[i - left[i] : i] and
    words[i + 1 : i + 1 + right[i]]; at[i] is its position in the text.
    """
    ids, starts = text
    a, b, key = piece[0], piece[1], np.uint64(piece[2])
    widest, dynamic = settings[0], settings[1]
    # Room for a full window on each side of the piece.
    words, at = np.empty(b - a + 2 * widest, np.int32), np.empty(b - a + 2 * widest, np.int64)
    left, right = np.zeros(len(words), np.int32), np.zeros(len(words), np.int32)
    # side="right": among empty lines at the same position, take the last one.
    line = np.searchsorted(starts, a, side="right") - 1
    begin, i = widest, a - 1
    # Words before the piece in the same line, from right to left, up to the widest window.
    while begin > 0 and i >= starts[line]:
        if stays(random_bits(key, np.uint64(i)), keep[ids[i]]):
            begin -= 1
            words[begin], at[begin] = ids[i], i
        i -= 1
    n, i, last = widest, a, widest
    while i < b:
        end = starts[line + 1]
        centre = n
        for i in range(i, min(end, b)):  # noqa: B020 (continues where the last line ended)
            # One random number per word: the upper half decides whether it is kept, the lower half its window width.
            bits = random_bits(key, np.uint64(i))
            if stays(bits, keep[ids[i]]):
                words[n], at[n] = ids[i], i
                right[n] = 1 + below(bits, widest) if dynamic else widest
                n += 1
        i, last = min(end, b), n
        # Kept words after the end of the piece, up to the end of the line or of the window.
        after = b
        while after < end and n < last + widest:
            if stays(random_bits(key, np.uint64(after)), keep[ids[after]]):
                words[n], at[n] = ids[after], after
                n += 1
            after += 1
        for k in range(centre, last):
            # Widths were drawn before the ends of the line were known: limit them now.
            width = right[k]
            left[k], right[k] = min(width, k - begin), min(width, n - 1 - k)
        begin, line = n, line + 1
    return words, at, left, right, widest, last


def windows_in_numpy(
    text: tuple[Any, Ints], piece: tuple[int, int, int], settings: tuple[int, bool], keep: NDArray[np.uint32]
) -> tuple[NDArray[np.int32], Ints, Ints, Ints, int, int]:
    """Return the same as ``windows``, computed by numpy, without unused items."""
    (ids, starts), (a, b, key), (widest, dynamic) = text, piece, settings

    def bits(at: Ints) -> NDArray[np.uint64]:
        # The same random numbers as the loop: results are equal.
        return np.asarray(array_bits(np.uint64(key), at.astype(np.uint64)))

    def kept(begin: int, end: int) -> Ints:
        at: Ints = np.arange(begin, end)
        return np.asarray(at[_stays(bits(at), keep[ids[begin:end]])])

    # Start of the piece's first line, and end of its last one.
    begin = int(starts[np.searchsorted(starts, a, side="right") - 1]) if a < b else a
    end = int(starts[np.searchsorted(starts, b, side="left")]) if a < b else b
    before = after = np.empty(0, np.int64)
    # Search the neighbours of the piece in growing steps: a line may be very long.
    low, high, step = a, b, 4 * widest
    while len(before) < widest and begin < low:
        before, low, step = np.concatenate([kept(max(begin, low - step), low), before]), low - step, 2 * step
    step = 4 * widest
    while len(after) < widest and high < end:
        after, high, step = np.concatenate([after, kept(high, min(high + step, end))]), high + step, 2 * step
    before, own = before[-widest:], kept(a, b)
    at = np.concatenate([before, own, after[:widest]])  # positions of kept words, (n,)
    line = np.searchsorted(starts, at, side="right")
    places = np.arange(len(at))
    width = 1 + _below(bits(at), widest) if dynamic else np.full(len(at), widest)
    # Kept words are sorted by line: searchsorted gives the first and the last of each line.
    left = np.minimum(width, places - np.searchsorted(line, line, side="left"))
    right = np.minimum(width, np.searchsorted(line, line, side="right") - 1 - places)
    return ids[at].astype(np.int32), at, left, right, len(before), len(before) + len(own)


class HuffmanPaths(NamedTuple):
    """Huffman path of each word: the inner nodes from the root down and their codes."""

    starts: NDArray[np.int64]  #: (V + 1,) the path of word v is [starts[v], starts[v + 1]) of the other arrays
    nodes: NDArray[np.int32]  #: rows of the output weights (V - 1, D), in the order of merging: the root is last
    codes: NDArray[np.int8]  #: 0 is left, 1 is right


def huffman(counts: NDArray[np.int64]) -> HuffmanPaths:
    """Build word2vec's Huffman tree; among equal counts, words merge before nodes.

    It is the tree of hierarchical softmax (Mikolov et al. 2013, arXiv:1310.4546, section 2.1). The probability of a
    word is a product over the inner nodes of its path: σ(x·v) for code 0 (left), σ(-x·v) for code 1 (right). The
    probabilities of all words sum to 1 for any weights.
    """
    n_words = len(counts)
    # Stable on negated counts, then reversed: among equals the last word is the rarest, as in word2vec.c.
    by_count = np.argsort(-counts, kind="stable")[::-1]
    words, sizes = by_count.tolist(), counts[by_count].tolist()
    made: list[int] = []
    children: list[int] = []
    word, node = 0, 0
    # Words are taken in ascending count, and nodes are created in ascending count: no heap is needed.
    for _ in range(n_words - 1):
        # Merge two: each is the rarer of the next word and the next node.
        total = 0
        for _ in range(2):
            if word < n_words and (node >= len(made) or sizes[word] <= made[node]):
                children.append(words[word])
                total += sizes[word]
                word += 1
            else:
                children.append(n_words + node)
                total += made[node]
                node += 1
        made.append(total)
    # Leaves are 0 .. V - 1, inner nodes V .. 2 V - 2 in the order of merging.
    root = 2 * n_words - 2
    parent, right = np.zeros(max(1, root + 1), np.int64), np.zeros(max(1, root + 1), np.int8)
    parent[children] = n_words + np.repeat(np.arange(n_words - 1), 2)
    # Children come in pairs: the second of each is the right one.
    right[children[1::2]] = 1
    # All words climb together, one level per pass.
    at, depths = np.arange(n_words), np.zeros(n_words, np.int64)
    while len(climbing := np.flatnonzero(at < root)):
        at[climbing] = parent[at[climbing]]
        depths[climbing] += 1
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(depths)])
    nodes, codes = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int8)
    at, ends = np.arange(n_words), starts[1:].copy()
    while len(climbing := np.flatnonzero(at < root)):
        # Filled from the end: the climb goes up, paths are read from the root down.
        ends[climbing] -= 1
        codes[ends[climbing]] = right[at[climbing]]
        at[climbing] = parent[at[climbing]]
        nodes[ends[climbing]] = at[climbing] - n_words
    return HuffmanPaths(starts, nodes, codes)
