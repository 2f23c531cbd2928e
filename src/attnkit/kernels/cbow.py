"""Continuous bag of words with negative sampling: a word is told from ``negative`` drawn ones by the words around it.

As gensim has it: the context's mean (or sum) x is held against the word (1) and fresh negatives (0), of which those
equal to the word are left out; the error goes whole to every row of the context, for a sum divided by how many they
are; and an output beyond ±6 moves nothing. All outputs of a word are taken before any row moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.kernels.compiled import inlined
from attnkit.kernels.logistic import slopes
from attnkit.kernels.sampling import drawn, number
from attnkit.kernels.skip_gram import NOISE, alpha_at, charge, scratch
from attnkit.kernels.subword import expect, longest, rows_around
from attnkit.kernels.vector import add_to_rows, clear, dots, prefetch, sum_rows, update
from attnkit.kernels.windows import windows

if TYPE_CHECKING:
    from attnkit.kernels.word2vec import Recipe

AHEAD = 2
"""Negatives are drawn, and their rows asked for, so many words before they are needed."""
AHEAD_AROUND = 4
"""Words are asked for so many words before the widest window reaches them."""
FARTHEST = np.float32(6.0)
_ONE, _MINUS = np.float32(1.0), np.float32(-1.0)


def loop(recipe: Recipe) -> Callable[..., Any]:
    """Return the loop; a mean and a sum differ only in what it is told."""
    return _train


@inlined
def _draw(work: Any, position: Any, tables: Any, rows: Any) -> None:
    key = number(np.uint64(work[2]) ^ NOISE, np.uint64(position))
    for k in range(len(rows)):
        rows[k] = drawn(number(key, np.uint64(k)), tables[1], tables[2])


@inlined
def _targets(word: Any, negatives: Any, rows: Any) -> Any:
    """Write the word and the negatives that are others into ``rows`` and return how many they are."""
    rows[0], n = word, 1
    for k in range(len(negatives)):
        if negatives[k] != word:
            rows[n] = negatives[k]
            n += 1
    return n


def _train(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    inputs, outputs, lanes = weights
    widest, _, negative, mean = knobs
    words, at, left, right, first, last = windows(text, work, knobs, tables[0])
    size, x_of, o_of = 64 * len(lanes), inputs.ctypes.data, outputs.ctypes.data
    room, scores = scratch(2, size // 4), scratch(1, negative + 32)[0]
    drawn_rows, targets = np.zeros((AHEAD + 1, negative), np.int64), np.zeros(negative + 4, np.int64)
    context = np.zeros(2 * widest * longest(words, (left, right), (first, last), tables), np.int64)
    costs, n_terms = np.ones((1, 2)), 0
    costs[0, 0] = 0.0
    for i in range(first - AHEAD, last):
        soon = i + AHEAD
        if soon < last:
            _draw(work, at[soon], tables, drawn_rows[soon % (AHEAD + 1)])
            for k in range(negative):
                prefetch(lanes, o_of + size * drawn_rows[soon % (AHEAD + 1), k])
            prefetch(lanes, o_of + size * np.int64(words[soon]))
        if i < first or left[i] + right[i] == 0:
            continue
        if i + widest + AHEAD_AROUND < last:
            expect(lanes, x_of, words[i + widest + AHEAD_AROUND], tables)
        m = rows_around(words, i, (left[i], right[i]), tables, context)
        n = _targets(words[i], drawn_rows[i % (AHEAD + 1)], targets)
        hidden, error = room.ctypes.data, room.ctypes.data + size  # here, so that the room stays
        share, alpha = _ONE / np.float32(m), alpha_at(work, at[i])
        sum_rows(lanes, x_of, context, m, share if mean else _ONE, hidden)
        dots(lanes, o_of, targets, n, hidden, scores)
        scores[0] = -scores[0]  # σ(f) is 1 - σ(-f): so the word is of one kind with the negatives
        for k in range(0, n, 16):
            charge(costs, 0, slopes(scores.ctypes.data + 4 * k, min(16, n - k), _MINUS, alpha, FARTHEST))
        scores[0] = -scores[0]
        n_terms += n
        clear(lanes, error)
        update(lanes, o_of, targets, n, (hidden, error), scores)
        add_to_rows(lanes, x_of, context, m, _ONE if mean else share, error)
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, last - first
