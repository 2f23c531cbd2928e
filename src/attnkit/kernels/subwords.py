"""Random segmentation of encoded lines, word by word: subword regularization.

Each word is spelled out in the bytes from which entries are made. BPE-dropout (Provilkov et al. 2020, algorithm 1) then
merges the pair with the lowest rank, again and again, but of the pairs that could be merged each is left out with a
probability, anew in every round; a round in which all are left out ends the word. Unigram sampling (Kudo 2018, equation
9, over all segmentations) draws a segmentation with a probability proportional to a power of its own: the sums over the
rest of the word are computed from its end, then entries are drawn from its start. Without numba the loop is plain
Python, with the same results.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnkit.kernels.jit import compiled, inline

CONTINUES, STARTS_WORD, IS_WORD = range(3)  #: roles of entries: inside a word, at its start, a word that is not split
UNKNOWN, LETTERS, DIGITS, SIGNS, APOSTROPHE, ELISION = range(6)
"""Classes of entries by their first character after a space; ``ELISION`` is an apostrophe and letters, as in don't."""
MAX_PIECES = 256  #: pieces of a word above which it keeps its encoding, since a word takes time quadratic in them


@inline
def _find(key: Any, keys: Any) -> Any:
    """Return the place of a pair in the table, or a free one if it is not merged."""
    mask = np.uint64(len(keys) - 1)
    # The lower half of a product of 32-bit numbers, so that plain Python does not overflow.
    mixed = ((key & np.uint64(0xFFFFFFFF)) * np.uint64(0x9E3779B1)) ^ ((key >> np.uint64(32)) * np.uint64(0x85EBCA77))
    place = (mixed ^ (mixed >> np.uint64(15))) & mask
    while keys[place] != np.uint64(0) and keys[place] != key:
        place = (place + np.uint64(1)) & mask
    return place


@inline
def _find_pair(left: Any, right: Any, keys: Any) -> Any:
    """Return the place of a pair of ids, or of a node and a byte, in the table.

    It is a free place if the table lacks the pair.
    """
    return _find(((np.uint64(left) << np.uint64(32)) | np.uint64(right)) + np.uint64(1), keys)


@inline
def _mix(number: Any) -> Any:
    """Return a pseudo-random 32-bit number (lowbias32, Wellons 2018)."""
    low = np.uint64(0xFFFFFFFF)
    number ^= number >> np.uint64(16)
    number = (number * np.uint64(0x7FEB352D)) & low
    number ^= number >> np.uint64(15)
    number = (number * np.uint64(0x846CA68B)) & low
    return number ^ (number >> np.uint64(16))


@inline
def _merge_word(word: Any, size: int, merges: Any, threshold: Any, key: Any, n_drawn: Any) -> Any:
    """Merge the pieces of a word in place; return their number and that of all draws."""
    keys, ranks, merged = merges
    while True:
        best, at, joined = np.int64(1) << np.int64(62), -1, 0
        for i in range(size - 1):
            place = _find_pair(word[i], word[i + 1], keys)
            if keys[place] == np.uint64(0):
                continue
            draw = _mix(key ^ _mix(n_drawn & np.uint64(0xFFFFFFFF)))
            n_drawn += np.uint64(1)
            if draw >= threshold and ranks[place] < best:
                best, at, joined = np.int64(ranks[place]), i, merged[place]
        if at < 0:
            return size, n_drawn
        word[at] = joined
        for i in range(at + 1, size - 1):
            word[i] = word[i + 1]
        size -= 1


@inline
def _draw_segments(word: Any, size: int, trie: Any, sums: Any, key: Any, n_drawn: Any) -> Any:
    """Draw entries for the bytes of a word; return their number and that of all draws.

    The entries take the places of the bytes; there are never more of them than bytes before.
    """
    keys, nodes, entries, scores = trie
    sums[size] = 0.0
    for begin in range(size - 1, -1, -1):
        node, total = 0, -np.inf
        for at in range(begin, size):
            place = _find_pair(node, word[at], keys)
            if keys[place] == np.uint64(0):
                break
            node = nodes[place]
            if entries[node] >= 0:
                one = scores[node] + sums[at + 1]
                most = max(total, one)
                total = most + math.log(math.exp(total - most) + math.exp(one - most))
        sums[begin] = total
    n, begin = 0, 0
    while begin < size:
        draw = (np.float64(_mix(key ^ _mix(n_drawn & np.uint64(0xFFFFFFFF)))) + 0.5) / 4294967296.0
        n_drawn += np.uint64(1)
        node, chosen, stop, mass = 0, 0, begin, 0.0
        for at in range(begin, size):
            place = _find_pair(node, word[at], keys)
            if keys[place] == np.uint64(0):
                break
            node = nodes[place]
            if entries[node] >= 0:
                mass += math.exp(scores[node] + sums[at + 1] - sums[begin])
                chosen, stop = entries[node], at + 1
                if draw < mass:
                    break
        word[n] = chosen
        n += 1
        begin = stop
    return n, n_drawn


@inline
def _continues(word_class: Any, own: Any, is_followed: bool) -> Any:
    """Return whether an entry belongs to the word before it.

    Words are those that vocabularies split text into: letters with apostrophes between them, digits, or other signs;
    bytes of a character belong to any. ``is_followed`` tells whether letters follow the entry.
    """
    if own == UNKNOWN or word_class == UNKNOWN:  # bytes of a character, or a space alone
        return True
    if own == ELISION:
        return word_class == LETTERS
    if own == APOSTROPHE:
        return word_class == SIGNS or (word_class == LETTERS and is_followed)
    return own == word_class


@inline
def _class_of_word(own: Any) -> Any:
    """Return the class of a word, given that of its first entry."""
    return SIGNS if own == APOSTROPHE else LETTERS if own == ELISION else own


@inline
def _word_end(ids: Any, begin: int, end: int, roles: Any, classes: Any) -> int:
    """Return the end of the word that begins at an entry; the row ends at ``end``."""
    stop = begin + 1
    if roles[ids[begin]] == IS_WORD:
        return stop
    word_class = _class_of_word(classes[ids[begin]])
    while stop < end and roles[ids[stop]] == CONTINUES:
        own = classes[ids[stop]]
        after = ids[stop + 1] if stop + 1 < end else ids[begin]
        is_followed = stop + 1 < end and roles[after] == CONTINUES and classes[after] == LETTERS
        if not _continues(word_class, own, is_followed):
            return stop
        if word_class == UNKNOWN:
            word_class = _class_of_word(own)
        stop += 1
    return stop


def _sample(
    text: Any, entries: Any, merges: Any, trie: Any, row_keys: Any, threshold: Any, longest: int, out: Any
) -> int:
    """Write the sampled ids and lengths of all rows to ``out``; return their number.

    Words are merged, or drawn if the trie has scores.
    """
    ids, lengths = text
    starts, pieces, roles, classes = entries
    new_ids, new_lengths, word, sums = out
    n, end = 0, 0
    for row in range(len(lengths)):
        key = np.uint64(row_keys[row])
        n_drawn = np.uint64(0)
        first, begin = n, end
        end = begin + lengths[row]
        i = begin
        while i < end:
            stop, size = _word_end(ids, i, end, roles, classes), 0
            for place in range(i, stop):
                for k in range(starts[ids[place]], starts[ids[place] + 1]):
                    if size < MAX_PIECES:
                        word[size] = pieces[k]
                    size += 1
            if size <= MAX_PIECES and roles[ids[i]] != IS_WORD:
                if len(trie[3]):
                    size, n_drawn = _draw_segments(word, size, trie, sums, key, n_drawn)
                else:
                    size, n_drawn = _merge_word(word, size, merges, threshold, key, n_drawn)
                for k in range(size):
                    new_ids[n] = word[k]
                    n += 1
            else:
                for k in range(i, stop):
                    new_ids[n] = ids[k]
                    n += 1
            i = stop
        if n - first > longest:
            n = first
            for k in range(begin, end):
                new_ids[n] = ids[k]
                n += 1
        new_lengths[row] = n - first
    return n


@cache
def compiled_loop() -> Callable[..., int] | None:
    """Return the compiled loop, or None without numba."""
    kinds = (np.int64, np.int32, np.uint64, np.uint8, np.float64)
    wide, words, keys, bytes_, floats = (np.empty(1, kind) for kind in kinds)
    tables = (wide, words, bytes_, bytes_), (keys, words, words), (keys, words, words, floats)
    arguments = ((wide, wide), *tables, keys, np.uint64(0), 1, (wide, wide, wide, floats))
    loop: Callable[..., int] | None = compiled(_sample, arguments, ("subwords", "compiled_loop"))
    return loop


class SubwordSampler:
    """Random segmentation by merges or by scores of entries."""

    def __init__(
        self,
        pieces: list[list[int]],
        roles: list[int],
        classes: list[int],
        *,
        longest: int,
        merges: Sequence[tuple[int, int, int]] = (),
        dropout: float = 0.0,
        scores: Sequence[float] = (),
    ) -> None:
        """Build the tables.

        Args:
            pieces: (V) ids of the bytes that spell each entry; its own id if it stays whole.
            roles: (V) ``CONTINUES``, ``STARTS_WORD`` or ``IS_WORD``.
            classes: (V) ``LETTERS`` or another class of the first character.
            longest: Length above which a row keeps its encoding.
            merges: Ids (left, right, merged) in the order in which they apply, for BPE-dropout.
            dropout: Probability that a merge is left out.
            scores: (V) logarithms of the weights of entries, for unigram sampling; empty for BPE-dropout.
        """
        sizes = np.fromiter(map(len, pieces), np.int64, len(pieces))
        flat = np.fromiter((id for one in pieces for id in one), np.int32, int(sizes.sum()))
        self._entries = np.concatenate([[0], np.cumsum(sizes)]), flat, *np.array([roles, classes], np.uint8)
        self._n_pieces, self._longest = sizes, longest
        self._threshold = np.uint64(round(dropout * 2**32))
        self._merges = _table([(left, right) for left, right, _ in merges], [joined for _, _, joined in merges])
        self._trie = _trie(pieces, roles, scores)

    def sample(
        self, ids: NDArray[np.int64], lengths: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows segmented anew, and the length of each.

        Args:
            ids: (N,) entries of all rows, concatenated.
            lengths: (B,) length of each row.
            keys: (B,) keys below 2**32 of the pseudo-random numbers of each row.
        """
        loop = compiled_loop() or _sample
        new_ids, new_lengths = np.empty(int(self._n_pieces[ids].sum()), np.int64), np.empty_like(lengths)
        out = new_ids, new_lengths, np.empty(MAX_PIECES, np.int64), np.empty(MAX_PIECES + 1)
        tables = self._entries, self._merges, self._trie
        n = loop((ids, lengths), *tables, keys, self._threshold, self._longest, out)
        return new_ids[:n], new_lengths


def _table(pairs: Sequence[tuple[int, int]], values: Sequence[int]) -> tuple[Any, Any, Any]:
    """Return a hash table of pairs: keys, places in the list, values."""
    keys = np.zeros(1 << (2 * len(pairs) + 2).bit_length(), np.uint64)
    ranks, found = np.zeros(len(keys), np.int32), np.zeros(len(keys), np.int32)
    for rank, ((left, right), value) in enumerate(zip(pairs, values, strict=True)):
        key = np.uint64((left << 32 | right) + 1)
        place = int(_find(key, keys))
        keys[place], ranks[place], found[place] = key, rank, value
    return keys, ranks, found


def _trie(pieces: list[list[int]], roles: list[int], scores: Sequence[float]) -> tuple[Any, Any, Any, Any]:
    """Return edges (node, byte) -> node, and the entry and score of each node."""
    edges: dict[tuple[int, int], int] = {}
    entries, weights = [-1], [0.0]
    for id, score in enumerate(scores):
        if roles[id] == IS_WORD:
            continue
        node = 0
        for piece in pieces[id]:
            node = edges.setdefault((node, piece), len(entries))
            if node == len(entries):
                entries.append(-1)
                weights.append(0.0)
        entries[node], weights[node] = id, score
    keys, _, nodes = _table(list(edges), list(edges.values()))
    return keys, nodes, np.array(entries, np.int32), np.array(weights if len(scores) else [], np.float64)
