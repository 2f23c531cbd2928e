"""Skip-gram with negative sampling (Mikolov et al. 2013): a centre's input row against the output rows around it.

For a centre x and a word o of its window the loss is -log σ(o·x) - Σ_k log σ(-n_k·x) over ``negative`` words n drawn by
count ** power; a drawn word that is o itself counts for nothing. ``_exact`` draws anew for every pair, as gensim does. In
``_shared`` ``BLOCK`` centres share ``SHARED`` drawn words, and each of these counts m negative / SHARED in a window of m
words: the same in expectation, with the rows at hand instead of somewhere in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.kernels.compiled import inlined
from attnkit.kernels.logistic import slopes
from attnkit.kernels.sampling import drawn, number
from attnkit.kernels.subword import enter, expect, leave
from attnkit.kernels.vector import add_to_row, clear, dots, dots16, prefetch, update
from attnkit.kernels.windows import windows

if TYPE_CHECKING:
    from attnkit.kernels.word2vec import Recipe

BLOCK = 16
SHARED = 32
"""A multiple of 16. Fewer than 20 cost quality."""
NOISE = np.uint64(0x6E6F697365)
"""Sets the numbers that draw words apart from those that choose windows."""
_ALL = np.float32(np.inf)
_ONE, _MINUS = np.float32(1.0), np.float32(-1.0)
_TINY = 1e-150


def loop(recipe: Recipe) -> Callable[..., Any]:
    """Return the loop of a recipe."""
    return _exact if recipe.exact else _shared


@inlined
def scratch(n: Any, width: Any) -> Any:
    """Return zeros (n, width), each row at a multiple of 64 bytes."""
    raw = np.zeros(n * width + 16, np.float32)
    skip = (-raw.ctypes.data % 64) // 4
    return raw[skip : skip + n * width].reshape(n, width)


@inlined
def charge(costs: Any, j: Any, chance: Any) -> Any:
    """Add -log chance to costs[j]; costs[j, 1] gathers a product so that few logarithms are taken."""
    costs[j, 1] *= chance
    if not costs[j, 1] > _TINY:
        costs[j, 0] -= np.log(costs[j, 1])
        costs[j, 1] = 1.0


@inlined
def context(words: Any, i: Any, reach: Any, rows: Any) -> Any:
    """Write the words of a window into ``rows`` and return how many they are."""
    n = 0
    for j in range(i - reach[0], i):
        rows[n] = words[j]
        n += 1
    for j in range(i + 1, i + 1 + reach[1]):
        rows[n] = words[j]
        n += 1
    return n


@inlined
def alpha_at(work: Any, position: Any) -> Any:
    """Return the learning rate at a position of the piece."""
    return np.float32(work[3] + (work[4] - work[3]) * np.float32((position - work[0]) / (work[1] - work[0])))


@inlined
def _draw(key: Any, tables: Any, rows: Any, outputs: Any, lanes: Any) -> Any:
    for k in range(len(rows)):
        rows[k] = drawn(number(key, np.uint64(k)), tables[1], tables[2])
        prefetch(lanes, outputs + np.int64(rows[k]) * (64 * len(lanes)))


@inlined
def _give_back(outputs: Any, rows: Any, copies: Any, before: Any) -> Any:
    for k in range(SHARED):
        row = rows[k]
        for d in range(outputs.shape[1]):
            outputs[row, d] += copies[k, d] - before[k, d]


def _shared(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    inputs, outputs, lanes = weights
    window, negative, key = knobs[0], knobs[2], np.uint64(work[2]) ^ NOISE
    words, at, left, right, begin, end = windows(text, work, knobs, tables[0])
    size, x_of, o_of = 64 * len(lanes), inputs.ctypes.data, outputs.ctypes.data
    copies, before, error = scratch(SHARED, size // 4), scratch(SHARED, size // 4), scratch(3, size // 4)
    steps, places = scratch(1, SHARED)[0], np.arange(SHARED)
    rows, near = np.empty(2 * window + 4, np.int64), scratch(1, 2 * window + 16)[0]
    drawn_now, drawn_next = np.zeros(SHARED, np.int64), np.zeros(SHARED, np.int64)
    costs = np.ones((2 * window + 1, 2))
    costs[:, 0] = 0.0
    n_terms, share = 0, np.float32(negative / SHARED)
    if begin < end:
        _draw(number(key, np.uint64(at[begin])), tables, drawn_next, o_of, lanes)
    for i in range(begin, end):
        if (i - begin) % BLOCK == 0:
            if i > begin:
                _give_back(outputs, drawn_now, copies, before)
            drawn_now, drawn_next = drawn_next, drawn_now
            for k in range(SHARED):
                copies[k], before[k] = outputs[drawn_now[k]], outputs[drawn_now[k]]
            if i + BLOCK < end:
                _draw(number(key, np.uint64(at[i + BLOCK])), tables, drawn_next, o_of, lanes)
        if i + 1 < end:
            expect(lanes, x_of, words[i + 1], tables)
        if i + window + 1 < len(words) and i + window + 1 < end:
            prefetch(lanes, o_of + size * np.int64(words[i + window + 1]))
        m = context(words, i, (left[i], right[i]), rows)
        if m == 0:
            continue
        x, alpha = enter(lanes, x_of, words[i], tables, error.ctypes.data + size), alpha_at(work, at[i])
        n_terms += m
        dots(lanes, o_of, rows, m, x, near)
        for k in range(0, m, 16):
            charge(costs, 0, slopes(near.ctypes.data + 4 * k, min(16, m - k), _ONE, alpha, _ALL))
        for k in range(0, SHARED, 16):
            dots16(lanes, copies.ctypes.data + size * k, x, steps.ctypes.data + 4 * k)
            charge(costs, m, slopes(steps.ctypes.data + 4 * k, 16, _MINUS, alpha * share * np.float32(m), _ALL))
        clear(lanes, error.ctypes.data)
        update(lanes, copies.ctypes.data, places, SHARED, (x, error.ctypes.data), steps)
        update(lanes, o_of, rows, m, (x, error.ctypes.data), near)
        add_to_row(lanes, x, _ONE, error.ctypes.data)
        leave(lanes, x_of, words[i], tables, error.ctypes.data + size)
    if begin < end:
        _give_back(outputs, drawn_now, copies, before)
    loss = costs[0, 0] - np.log(costs[0, 1])
    for m in range(1, len(costs)):
        loss += (costs[m, 0] - np.log(costs[m, 1])) * m * negative / SHARED
    return loss, n_terms * (1 + negative), end - begin


def _exact(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    inputs, outputs, lanes = weights
    window, negative, key = knobs[0], knobs[2], np.uint64(work[2]) ^ NOISE
    words, at, left, right, begin, end = windows(text, work, knobs, tables[0])
    size, x_of, o_of = 64 * len(lanes), inputs.ctypes.data, outputs.ctypes.data
    error, steps = scratch(3, size // 4), scratch(1, negative + 32)[0]
    rows, some = np.empty(2 * window + 4, np.int64), np.empty(negative + 5, np.int64)
    drawn_now = np.empty(2 * window * negative, np.int64)
    drawn_next = np.empty(2 * window * negative, np.int64)
    costs = np.ones((1, 2))
    costs[0, 0] = 0.0
    n_terms = 0
    for i in range(begin - 1, end):
        drawn_now, drawn_next = drawn_next, drawn_now
        if i + 1 < end:
            expect(lanes, x_of, words[i + 1], tables)
            n_next = np.int64(left[i + 1] + right[i + 1]) * negative
            _draw(number(key, np.uint64(at[i + 1])), tables, drawn_next[:n_next], o_of, lanes)
        if i < begin:
            continue
        m = context(words, i, (left[i], right[i]), rows)
        x, alpha = enter(lanes, x_of, words[i], tables, error.ctypes.data + size), alpha_at(work, at[i])
        for j in range(m):
            some[0], n = rows[j], 1
            for k in range(j * negative, (j + 1) * negative):
                if drawn_now[k] != rows[j]:
                    some[n] = drawn_now[k]
                    n += 1
            n_terms += n
            dots(lanes, o_of, some, n, x, steps)
            steps[0] = -steps[0]  # so that all are of one kind
            for k in range(0, n, 16):
                charge(costs, 0, slopes(steps.ctypes.data + 4 * k, min(16, n - k), _MINUS, alpha, np.float32(6.0)))
            steps[0] = -steps[0]
            clear(lanes, error.ctypes.data)
            update(lanes, o_of, some, n, (x, error.ctypes.data), steps)
            add_to_row(lanes, x, _ONE, error.ctypes.data)
        leave(lanes, x_of, words[i], tables, error.ctypes.data + size)
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, end - begin
