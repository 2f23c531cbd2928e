"""The Huffman tree of a vocabulary, for hierarchical softmax (Mikolov et al. 2013, "Distributed Representations of
Words and Phrases and their Compositionality", arXiv:1310.4546, section 2.1).

A word's probability is a product over the inner nodes between the root and it: σ(x·v) where it lies to the left
(code 0), σ(-x·v) to the right (code 1). So the probabilities of all words add up to 1 whatever the weights are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Paths:
    """Path to each word: inner nodes from the root down, and the turn at each."""

    starts: NDArray[np.int64]  #: (V + 1,): the way to word v is [starts[v], starts[v + 1]) of the other two
    nodes: NDArray[np.int32]
    """Rows of the output weights (V - 1, D), numbered as they were joined: the root is the last."""
    codes: NDArray[np.int8]  #: 0 to the left, 1 to the right


def huffman(counts: NDArray[np.int64]) -> Paths:
    """Return the tree that word2vec builds; among equally rare parts, words are joined before nodes."""
    n_words = len(counts)
    # Stable on negated counts, then reversed: among equals the last word is the rarest, as in word2vec.c.
    by_count = np.argsort(-counts, kind="stable")[::-1]
    words, sizes = by_count.tolist(), counts[by_count].tolist()
    made: list[int] = []
    children: list[int] = []
    word, node = 0, 0
    # Words are taken from the rarest up and nodes as they were made, whose counts never fall: no heap is needed.
    for _ in range(n_words - 1):
        # Two parts become one: twice the rarer of the next word and the next node.
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
    # Leaves are 0 .. V - 1, inner nodes V .. 2 V - 2 in the order in which they were joined.
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
    return Paths(starts, nodes, codes)
