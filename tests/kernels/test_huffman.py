"""The tree of hierarchical softmax: worked by hand, as cheap as a heap makes it, and a distribution over words."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from numpy.typing import NDArray

from attnkit.kernels.sampling import HuffmanPaths, huffman


def way(counts: list[int], word: int) -> list[tuple[int, int]]:
    paths = huffman(np.array(counts))
    span = slice(paths.starts[word], paths.starts[word + 1])
    return list(zip(paths.nodes[span].tolist(), paths.codes[span].tolist(), strict=True))


def test_a_tree_worked_by_hand() -> None:
    # 2 + 3 → node 0 (5); 4 + 5 (node 0) → node 1 (9); 9 (node 1) + 10 → node 2, the root.
    counts = [10, 4, 3, 2]
    assert way(counts, 0) == [(2, 1)]
    assert way(counts, 1) == [(2, 0), (1, 0)]
    assert way(counts, 2) == [(2, 0), (1, 1), (0, 1)]
    assert way(counts, 3) == [(2, 0), (1, 1), (0, 0)]


def test_the_order_of_the_words_makes_no_difference() -> None:
    assert way([2, 3, 4, 10], 0) == way([10, 4, 3, 2], 3)


def test_words_are_joined_before_nodes() -> None:
    # 1 + 1 → node 0 (2); then both words of count 2 are joined, not node 0.
    assert [len(way([2, 2, 1, 1], word)) for word in range(4)] == [2, 2, 2, 2]


def heap_cost(counts: list[int]) -> int:
    """Return Σ count · depth of an optimal tree: the sum of all inner nodes' counts."""
    heap, cost = sorted(counts), 0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)
        heapq.heappush(heap, both)
        cost += both
    return cost


def test_the_tree_is_optimal_and_words_are_a_distribution() -> None:
    random = np.random.default_rng(3)
    counts = np.sort((1000 / random.uniform(1, 300, 97)).astype(np.int64))[::-1].copy()
    paths = huffman(counts)
    assert int((counts * np.diff(paths.starts)).sum()) == heap_cost(counts.tolist())
    outputs, hidden = random.normal(size=(96, 8)), random.normal(size=8)
    assert sum(probability(paths, word, outputs, hidden) for word in range(97)) == pytest.approx(1, abs=1e-12)
    assert set(paths.nodes.tolist()) == set(range(96))


def probability(paths: HuffmanPaths, word: int, outputs: NDArray[np.float64], hidden: NDArray[np.float64]) -> float:
    product = 1.0
    for at in range(paths.starts[word], paths.starts[word + 1]):
        sign = 1 - 2 * paths.codes[at]
        product /= 1 + np.exp(-sign * (outputs[paths.nodes[at]] @ hidden))
    return product


def test_one_word_has_no_way_to_go() -> None:
    assert way([7], 0) == []
    assert len(huffman(np.array([7])).nodes) == 0


def test_a_deep_tree() -> None:
    counts = [2**n for n in range(40)]
    assert [len(way(counts, word)) for word in (0, 1, 38, 39)] == [39, 39, 2, 1]
