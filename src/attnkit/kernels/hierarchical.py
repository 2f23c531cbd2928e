"""Hierarchical softmax (Morin and Bengio 2005; Mikolov et al. 2013, section 2.1) for skip-gram and bags of words.

For an input x and a word whose path has the nodes v and codes c the loss is -Σ log σ(±v·x), plus for code 0. With
skip-gram x is the centre's input, and the words are those around it; with a bag x is the context's mean (or sum), the
word its centre. As gensim has it, an output beyond ±6 moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.kernels.compiled import inlined
from attnkit.kernels.logistic import slopes
from attnkit.kernels.skip_gram import alpha_at, charge, scratch
from attnkit.kernels.subword import enter, expect, leave, longest, rows_around
from attnkit.kernels.vector import add_to_row, add_to_rows, clear, dots, prefetch, sum_rows, update
from attnkit.kernels.windows import windows

if TYPE_CHECKING:
    from attnkit.kernels.word2vec import Recipe

FARTHEST = np.float32(6.0)
_ONE, _MINUS = np.float32(1.0), np.float32(-1.0)


def loop(recipe: Recipe) -> Callable[..., Any]:
    """Return the loop of a recipe."""
    return _cbow if recipe.method == "cbow" else _skip_gram


@inlined
def _expect_path(lanes: Any, outputs: Any, word: Any, tables: Any) -> None:
    for k in range(tables[3][word], tables[3][word + 1]):
        prefetch(lanes, outputs + 64 * len(lanes) * np.int64(tables[4][k]))


@inlined
def _descend(lanes: Any, outputs: Any, word: Any, tables: Any, given: Any) -> Any:
    """Go down a word's path, 16 nodes at a time: move them, and gather the input's error. Return how many they were.

    ``given`` is (the input's address, the error's, alpha, room for the rows, room for the scores, costs).
    """
    starts, nodes, codes = tables[3], tables[4], tables[5]
    x, error, alpha, rows, scores, costs = given
    clear(lanes, error)
    for begin in range(starts[word], starts[word + 1], 16):
        n = min(16, starts[word + 1] - begin)
        for k in range(n):
            rows[k] = nodes[begin + k]
        dots(lanes, outputs, rows, n, x, scores)
        _turn(scores, codes, begin, n)
        charge(costs, 0, slopes(scores.ctypes.data, n, _MINUS, alpha, FARTHEST))
        _turn(scores, codes, begin, n)
        update(lanes, outputs, rows, n, (x, error), scores)
    return starts[word + 1] - starts[word]


@inlined
def _turn(scores: Any, codes: Any, begin: Any, n: Any) -> None:
    """Change the signs of code 0: σ(f) is 1 - σ(-f), so all are of one kind."""
    for k in range(n):
        if codes[begin + k] == 0:
            scores[k] = -scores[k]


def _skip_gram(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    inputs, outputs, lanes = weights
    widest = knobs[0]
    words, at, left, right, first, last = windows(text, work, knobs, tables[0])
    x_of, o_of = inputs.ctypes.data, outputs.ctypes.data
    room, rows, scores = scratch(3, 16 * len(lanes)), np.zeros(20, np.int64), scratch(1, 32)[0]
    costs, n_terms = np.ones((1, 2)), 0
    costs[0, 0] = 0.0
    for i in range(first, last):
        if i + 1 < last:
            expect(lanes, x_of, words[i + 1], tables)
        if i + widest + 1 < last:
            _expect_path(lanes, o_of, words[i + widest + 1], tables)
        if left[i] + right[i] == 0:
            continue
        mean, error = room.ctypes.data, room.ctypes.data + 128 * len(lanes)  # here, so that the room stays
        x = enter(lanes, x_of, words[i], tables, mean)
        given = (x, error, alpha_at(work, at[i]), rows, scores, costs)
        for j in range(i - left[i], i + right[i] + 1):
            if j != i:
                n_terms += _descend(lanes, o_of, words[j], tables, given)
                add_to_row(lanes, x, _ONE, error)
        leave(lanes, x_of, words[i], tables, mean)
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, last - first


def _cbow(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    inputs, outputs, lanes = weights
    widest, mean = knobs[0], knobs[3]
    words, at, left, right, first, last = windows(text, work, knobs, tables[0])
    x_of, o_of = inputs.ctypes.data, outputs.ctypes.data
    room, rows, scores = scratch(2, 16 * len(lanes)), np.zeros(20, np.int64), scratch(1, 32)[0]
    context = np.zeros(2 * widest * longest(words, (left, right), (first, last), tables), np.int64)
    costs, n_terms = np.ones((1, 2)), 0
    costs[0, 0] = 0.0
    for i in range(first, last):
        if i + 1 < last:
            _expect_path(lanes, o_of, words[i + 1], tables)
        if i + widest + 1 < last:
            expect(lanes, x_of, words[i + widest + 1], tables)
        m = rows_around(words, i, (left[i], right[i]), tables, context)
        if m == 0:
            continue
        hidden, error = room.ctypes.data, room.ctypes.data + 64 * len(lanes)  # here, so that the room stays
        share, alpha = _ONE / np.float32(m), alpha_at(work, at[i])
        sum_rows(lanes, x_of, context, m, share if mean else _ONE, hidden)
        n_terms += _descend(lanes, o_of, words[i], tables, (hidden, error, alpha, rows, scores, costs))
        add_to_rows(lanes, x_of, context, m, _ONE if mean else share, error)
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, last - first
