"""Hierarchical softmax (Morin and Bengio 2005; Mikolov et al. 2013, section 2.1) for skip-gram and bags of words.

For an input x and a word whose path has the nodes v and codes c the loss is -Σ log σ(±v·x), plus for code 0. With
skip-gram x is the centre's input, and the words are those around it; with a bag x is the context's mean (or sum), the
word its centre. As gensim has it, an output beyond ±6 moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.kernels.jit import inline, no_refcount
from attnkit.kernels.logistic import slopes
from attnkit.kernels.skip_gram import add_nll, alpha_at, scratch
from attnkit.kernels.subword import load_input, longest_input, prefetch_input, rows_around, store_input
from attnkit.kernels.vector import add_to_row, add_to_rows, clear, dots, item, prefetch, sum_rows, update
from attnkit.kernels.windows import windows

if TYPE_CHECKING:
    from attnkit.kernels.word2vec import LoopSpec

FARTHEST = np.float32(6.0)
_ONE, _MINUS = np.float32(1.0), np.float32(-1.0)


def loop(recipe: LoopSpec) -> Callable[..., Any]:
    """Return the loop of a recipe."""
    # The same descent for both methods.
    return _bags if recipe.method == "cbow" else _pairs


@inline
def _prefetch_path(lanes: Any, outputs: Any, word: Any, tables: Any) -> None:
    for k in range(item(tables[3], word), item(tables[3], word + 1)):
        prefetch(lanes, outputs + 64 * len(lanes) * item(tables[4], k))


@inline
# Nodes of a path are distinct, so 16 of them can be moved together.
def _descend(lanes: Any, outputs: Any, word: Any, tables: Any, given: Any) -> Any:
    """Go down a word's path, 16 nodes at a time: move them, and set the input's error. Return how many they were.

    ``given`` is (the input's address, the error's, alpha, room for the rows, room for the scores, costs).
    """
    # tables[3:6] are starts, nodes and codes of all paths end to end.
    nodes, codes, first, last = tables[4], tables[5], item(tables[3], word), item(tables[3], word + 1)
    x, error, alpha, rows, scores, costs = given
    # The error of the input adds up over all nodes.
    clear(lanes, error)
    for begin in range(first, last, 16):
        n = min(16, last - begin)
        for k in range(n):
            rows[np.uint64(k)] = item(nodes, begin + k)
        # v·x of up to 16 nodes.
        dots(lanes, outputs, rows, n, x, scores)
        _turn(scores, codes, begin, n)
        add_nll(costs, np.uint64(0), slopes(scores.ctypes.data, n, _MINUS, alpha, FARTHEST))
        _turn(scores, codes, begin, n)
        update(lanes, outputs, rows, n, (x, error), scores)
    return last - first


@inline
def _turn(scores: Any, codes: Any, begin: Any, n: Any) -> None:
    """Change the signs of code 0: σ(f) is 1 - σ(-f), so all are of one kind."""
    for k in range(n):
        if item(codes, begin + k) == 0:
            scores[np.uint64(k)] = -scores[np.uint64(k)]


def _pairs(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    found = windows(text, work, knobs, tables[0])
    pool, rows, costs = (scratch(3, 16 * len(weights[2])), scratch(1, 32)), np.zeros(20, np.int64), np.ones((1, 2))
    costs[0, 0] = 0.0
    n_terms = _train_pairs(weights, (work, knobs, found), tables, (pool, rows, costs))
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, found[5] - found[4]


@no_refcount
def _train_pairs(weights: Any, given: Any, tables: Any, room: Any) -> Any:
    inputs, outputs, lanes = weights
    work, knobs, (words, at, left, right, first, last) = given
    pool, rows, costs = room
    # Raw addresses: numba would check bounds and count references.
    window, x_of, o_of, scores, n_terms = knobs[0], inputs.ctypes.data, outputs.ctypes.data, pool[1][0], 0
    error, mean = pool[0].ctypes.data, pool[0].ctypes.data + 64 * len(lanes)
    for i in range(first, last):
        if i + 1 < last:
            prefetch_input(lanes, x_of, item(words, i + 1), tables)
        if i + window + 1 < last:
            _prefetch_path(lanes, o_of, item(words, i + window + 1), tables)
        centre = item(words, i)
        # The centre's input serves its whole window and is written back once.
        x = load_input(lanes, x_of, centre, tables, mean)
        order = (x, error, alpha_at(work, item(at, i)), rows, scores, costs)
        for j in range(i - item(left, i), i + item(right, i) + 1):
            if j != i:
                n_terms += _descend(lanes, o_of, item(words, j), tables, order)
                add_to_row(lanes, x, _ONE, error)
        store_input(lanes, x_of, centre, tables, mean)
    return n_terms


def _bags(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    found = windows(text, work, knobs, tables[0])
    pool, rows, costs = (scratch(2, 16 * len(weights[2])), scratch(1, 32)), np.zeros(20, np.int64), np.ones((1, 2))
    # With subwords a context word has several rows: room for the longest, over both sides.
    longest = longest_input(found[0], (found[2], found[3]), (found[4], found[5]), tables)
    costs[0, 0] = 0.0
    lists = rows, np.zeros(2 * knobs[0] * longest, np.int64)
    n_terms = _train_bags(weights, (work, knobs, found), tables, (pool, lists, costs))
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, found[5] - found[4]


@no_refcount
def _train_bags(weights: Any, given: Any, tables: Any, room: Any) -> Any:
    inputs, outputs, lanes = weights
    work, knobs, (words, at, left, right, first, last) = given
    pool, (rows, around), costs = room
    window, mean, x_of, o_of, n_terms = knobs[0], knobs[3], inputs.ctypes.data, outputs.ctypes.data, 0
    hidden, error = pool[0].ctypes.data, pool[0].ctypes.data + 64 * len(lanes)
    for i in range(first, last):
        if i + 1 < last:
            _prefetch_path(lanes, o_of, item(words, i + 1), tables)
        if i + window + 1 < last:
            prefetch_input(lanes, x_of, item(words, i + window + 1), tables)
        # Rows of the context words, n-grams included.
        m = rows_around(words, i, (item(left, i), item(right, i)), tables, around)
        if m == 0:
            continue
        # As in cbow: the mean scales the input, the sum scales the error.
        share, order = _ONE / np.float32(m), (hidden, error, alpha_at(work, item(at, i)), rows, pool[1][0], costs)
        sum_rows(lanes, x_of, around, m, share if mean else _ONE, hidden)
        n_terms += _descend(lanes, o_of, item(words, i), tables, order)
        add_to_rows(lanes, x_of, around, m, _ONE if mean else share, error)
    return n_terms
