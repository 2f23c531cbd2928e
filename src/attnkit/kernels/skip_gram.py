"""Skip-gram with negative sampling (Mikolov et al. 2013): a centre's input row against the output rows around it.

For a centre x and a word o of its window the loss is -log σ(o·x) - Σ_k log σ(-n_k·x) over ``negative`` words n drawn
by count ** power. ``_exact`` draws anew for every pair, as gensim does; a drawn word that is o itself counts for
nothing there. In ``_shared`` ``BLOCK`` centres share ``SHARED`` drawn words, and each of these counts
m negative / SHARED in a window of m words: the same in expectation, with the rows at hand instead of somewhere in
memory. There the drawn rows are read once and moved once a block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnkit.kernels.jit import inline, no_refcount
from attnkit.kernels.logistic import slopes, slopes32
from attnkit.kernels.sampling import drawn, number
from attnkit.kernels.subword import load_input, prefetch_input, store_input
from attnkit.kernels.vector import add_to_row, clear, copy_row, dots, dots16, item, prefetch, update, weigh
from attnkit.kernels.windows import windows

if TYPE_CHECKING:
    from attnkit.kernels.word2vec import LoopSpec

# Letters: V words, P floats of a padded row, m words of a window. Addresses are bytes.
BLOCK = 16
"""Centres that share noise words, at most."""
SHARED = 32
"""Noise words per block, the number that ``slopes32`` takes; fewer than 20 cost quality."""
NOISE = np.uint64(0x6E6F697365)
"""Key of the stream that draws negatives, apart from that of window sizes."""
FARTHEST = np.float32(6.0)
"""Scores at least this far from 0 have no gradient, as in gensim."""
_ALL = np.float32(np.inf)
_ONE, _MINUS = np.float32(1.0), np.float32(-1.0)
_TINY = 1e-50


def loop(recipe: LoopSpec) -> Callable[..., Any]:
    """Return the loop of a recipe."""
    return _exact if recipe.exact else _shared


@inline
def scratch(n: Any, width: Any) -> Any:
    """Return zeros (n, width), each row at a multiple of 64 bytes."""
    raw = np.zeros(n * width + 16, np.float32)
    # Vectors are loaded aligned; numpy promises 16 bytes only.
    skip = (-raw.ctypes.data % 64) // 4
    return raw[skip : skip + n * width].reshape(n, width)


@inline
def add_nll(costs: Any, j: Any, chance: Any) -> Any:
    """Add -log chance to costs[j]; costs[j, 1] gathers a product so that few logarithms are taken."""
    costs[j, 1] *= chance
    # Not "<=": NaN takes this branch as well, so that a diverged loss is seen.
    if not costs[j, 1] > _TINY:
        costs[j, 0] -= np.log(costs[j, 1])
        costs[j, 1] = 1.0


@inline
def context(words: Any, i: Any, reach: Any, rows: Any) -> Any:
    """Write the words of a window into ``rows`` and return how many they are."""
    n = np.uint64(0)
    for j in range(i - reach[0], i + 1 + reach[1]):
        if j != i:
            rows[n] = item(words, j)
            n += np.uint64(1)
    return reach[0] + reach[1]


@inline
def alpha_at(work: Any, position: Any) -> Any:
    """Return the learning rate at a position of the piece."""
    # Linear from work[3] to work[4] between positions work[0] and work[1].
    return np.float32(work[3] + (work[4] - work[3]) * np.float32((position - work[0]) / (work[1] - work[0])))


@inline
def block_length(knobs: Any) -> Any:
    """Return how many centres share drawn words: fewer than ``BLOCK`` where windows are wide or negatives many.

    The rows of drawn words stand still until the block's end, so that what they are moved by then must not be too much.
    """
    # Expected negatives per centre: a random window (knobs[1]) is half as wide on average.
    usual = (knobs[0] + 1 if knobs[1] else 2 * knobs[0]) * knobs[2]
    return max(1, min(BLOCK, BLOCK * SHARED // max(usual, 1)))


@inline
def _draw(key: Any, tables: Any, chosen: Any, outputs: Any, lanes: Any) -> Any:
    """Draw words chosen[1]..chosen[2] under a key into the list chosen[0], and ask for their rows."""
    for k in range(chosen[1], chosen[2]):
        row = drawn(number(key, np.uint64(k - chosen[1])), tables[1], tables[2])
        chosen[0][np.uint64(k)] = row
        prefetch(lanes, outputs + row * (64 * len(lanes)))


def _shared(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    window, size = knobs[0], 64 * len(weights[2])
    found = windows(text, work, knobs, tables[0])
    rows, costs = np.empty(2 * window + 4 + 2 * SHARED, np.int64), np.ones((2 * window + 2, 2))
    # Copies of the noise rows, of the block's inputs, and room for an error and a mean.
    pool = scratch(SHARED + BLOCK + 3, size // 4), scratch(BLOCK, SHARED), scratch(1, 2 * window + 16)
    costs[:, 0] = 0.0
    n_terms = _train_shared(weights, (work, knobs, found), tables, (pool, rows, costs))
    loss = costs[-1, 0] - np.log(costs[-1, 1])
    # Noise terms are summed by window width m, since each counts m * negative / SHARED.
    for m in range(len(costs) - 1):
        loss += (costs[m, 0] - np.log(costs[m, 1])) * m * knobs[2] / SHARED
    return loss, n_terms * (1 + knobs[2]), found[5] - found[4]


@no_refcount
def _train_shared(weights: Any, given: Any, tables: Any, room: Any) -> Any:
    inputs, outputs, lanes = weights
    work, knobs, (words, at, left, right, begin, end) = given
    window, negative, key = knobs[0], knobs[2], np.uint64(work[2]) ^ NOISE
    pool, rows, costs = room
    size, x_of, o_of = 64 * len(lanes), inputs.ctypes.data, outputs.ctypes.data
    # Layout of the pool: SHARED noise rows, BLOCK inputs, an error row, two rows for a mean.
    copies, steps_of, near = pool[0].ctypes.data, pool[1].ctypes.data, pool[2][0]
    centres, error = copies + size * SHARED, copies + size * (SHARED + BLOCK)
    near_of, chosen = near.ctypes.data, rows[2 * window + 4 :]
    # Each shared word counts as negative / SHARED of a drawn one.
    n_terms, share, now = 0, np.float32(negative / SHARED), 0
    length = block_length(knobs)
    if begin < end:
        _draw(number(key, np.uint64(at[begin])), tables, (chosen, 0, SHARED), o_of, lanes)
    for block in range(begin, end, length):
        last = min(block + length, end)
        for k in range(SHARED):
            copy_row(lanes, copies + size * k, o_of + size * item(chosen, now + k))
        # Two halves take turns: one is in use while the next block's rows are prefetched.
        later = SHARED - now
        for k in range(SHARED if last < end else 0):
            bits = number(number(key, np.uint64(item(at, last))), np.uint64(k))
            chosen[np.uint64(later + k)] = drawn(bits, tables[1], tables[2])
        for i in range(block, last):
            for k in range((i - block) * SHARED // length, (i - block + 1) * SHARED // length if last < end else 0):
                prefetch(lanes, o_of + size * item(chosen, later + k))  # all at once would be more than it can wait for
            if i + 1 < end:
                prefetch_input(lanes, x_of, item(words, i + 1), tables)
            if i + window + 1 < end:
                prefetch(lanes, o_of + size * item(words, i + window + 1))
            m = context(words, i, (item(left, i), item(right, i)), rows)
            # The learning rate falls within a piece.
            word, alpha = item(words, i), alpha_at(work, item(at, i))
            x = load_input(lanes, x_of, word, tables, error + size)
            x_kept, steps = centres + size * (i - block), steps_of + 4 * SHARED * (i - block)
            n_terms += m
            # The input as it was before its step: noise rows move by it at the end of the block.
            copy_row(lanes, x_kept, x)
            clear(lanes, error)
            for k in range(0, SHARED, 16):
                dots16(lanes, copies + size * k, x_kept, steps + 4 * k)
            add_nll(costs, np.uint64(m), slopes32(steps, _MINUS, alpha * share * np.float32(m)))
            weigh(lanes, copies, SHARED, (steps, 4), error)
            # The window's own words, exactly.
            dots(lanes, o_of, rows, m, x_kept, near)
            for k in range(0, m, 16):
                add_nll(costs, np.uint64(2 * window + 1), slopes(near_of + 4 * k, min(16, m - k), _ONE, alpha, _ALL))
            update(lanes, o_of, rows, m, (x_kept, error), near)
            add_to_row(lanes, x, _ONE, error)
            store_input(lanes, x_of, word, tables, error + size)
        for k in range(SHARED):
            # One read and one write per noise row and block: the gain over _exact.
            weigh(lanes, centres, last - block, (steps_of + 4 * k, 4 * SHARED), o_of + size * item(chosen, now + k))
        now = SHARED - now
    return n_terms


def _exact(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    window, negative, size = knobs[0], knobs[2], 64 * len(weights[2])
    found = windows(text, work, knobs, tables[0])
    rows = (
        np.empty(2 * window + 4, np.int64),
        np.empty(negative + 5, np.int64),
        np.empty(4 * window * negative, np.int64),
    )
    pool, costs = (scratch(3, size // 4), scratch(1, negative + 32)), np.ones((1, 2))
    costs[0, 0] = 0.0
    n_terms = _train_exact(weights, (work, knobs, found), tables, (pool, rows, costs))
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, found[5] - found[4]


@no_refcount
def _train_exact(weights: Any, given: Any, tables: Any, room: Any) -> Any:
    inputs, outputs, lanes = weights
    work, knobs, (words, at, left, right, begin, end) = given
    window, negative, key = knobs[0], knobs[2], np.uint64(work[2]) ^ NOISE
    pool, (rows, some, chosen), costs = room
    size, x_of, o_of = 64 * len(lanes), inputs.ctypes.data, outputs.ctypes.data
    error, steps = pool[0].ctypes.data, pool[1][0]
    steps_of, many = steps.ctypes.data, 2 * window * negative
    n_terms, now = 0, 0
    for i in range(begin - 1, end):
        # Two halves: negatives of this centre, and those drawn ahead for the next.
        now = many - now
        if i + 1 < end:
            prefetch_input(lanes, x_of, item(words, i + 1), tables)
            n_next = (item(left, i + 1) + item(right, i + 1)) * negative
            place = (chosen, many - now, many - now + n_next)
            _draw(number(key, np.uint64(item(at, i + 1))), tables, place, o_of, lanes)
        if i < begin:
            continue
        if i + window + 1 < end:
            prefetch(lanes, o_of + size * item(words, i + window + 1))
        m = context(words, i, (item(left, i), item(right, i)), rows)
        centre, alpha = item(words, i), alpha_at(work, item(at, i))
        x = load_input(lanes, x_of, centre, tables, error + size)
        for j in range(m):
            n = _others(item(rows, j), (chosen, now + j * negative, now + (j + 1) * negative), some)
            n_terms += n
            dots(lanes, o_of, some, n, x, steps)
            steps[0] = -steps[0]  # so that all are of one kind
            for k in range(0, n, 16):
                add_nll(costs, np.uint64(0), slopes(steps_of + 4 * k, min(16, n - k), _MINUS, alpha, FARTHEST))
            steps[0] = -steps[0]
            clear(lanes, error)
            update(lanes, o_of, some, n, (x, error), steps)
            add_to_row(lanes, x, _ONE, error)
        store_input(lanes, x_of, centre, tables, error + size)
    return n_terms


@inline
def _others(word: Any, chosen: Any, rows: Any) -> Any:
    """Write a word and those of the drawn ones that are not it into ``rows``, and return how many they are."""
    rows[0], n = word, np.uint64(1)
    for k in range(chosen[1], chosen[2]):
        # Written always, counted only if it differs: cheaper than a branch.
        rows[n] = item(chosen[0], k)
        n += np.uint64(item(chosen[0], k) != word)
    return np.int64(n)
