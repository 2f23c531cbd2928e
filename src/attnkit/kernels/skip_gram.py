"""Skip-gram: a centre's input row against the output rows around it.

``pairs`` and ``pairs_with_paths`` train pair by pair (``outputs``), and draw anew for every pair, as gensim does. In
``shared`` ``BLOCK`` centres share ``SHARED`` drawn words, and each of these counts m negative / SHARED in a window of m
words: the same in expectation, with the rows at hand instead of somewhere in memory. There the drawn rows are read once
and moved once a block.

Loops take (weights, text, piece, settings, tables), as ``word2vec`` has them. Each is two functions: the outer one
makes all arrays, since the inner one counts no references and so cannot.
"""

from typing import Any

import numpy as np

from attnkit.kernels.jit import inline, no_refcount
from attnkit.kernels.layers import (
    MINUS_ONE,
    ONE,
    add_nll,
    aligned_rows,
    draw_negatives,
    learning_rate,
    load_input,
    noise_key,
    prefetch_input,
    prefetch_outputs,
    store_input,
    train_outputs,
)
from attnkit.kernels.logistic import slopes, slopes32
from attnkit.kernels.sampling import drawn, random_bits, windows
from attnkit.kernels.vector import add_to_row, clear, copy_row, dots, dots16, item, prefetch, update, weigh

# Letters: V words, P floats of a padded row, m words of a window. Addresses are bytes.
BLOCK = 16  #: centres that share noise words, at most
SHARED = 32  #: noise words per block, the number that ``slopes32`` takes; fewer than 20 cost quality
_NO_LIMIT = np.float32(np.inf)


@inline
def block_length(settings: Any) -> Any:
    """Return how many centres share drawn words: fewer than ``BLOCK`` where windows are wide or negatives many.

    The rows of drawn words stand still until the block's end, so that what they are moved by then must not be too much.
    """
    # Expected negatives per centre: a random window (settings[1]) is half as wide on average.
    usual = (settings[0] + 1 if settings[1] else 2 * settings[0]) * settings[2]
    return max(1, min(BLOCK, BLOCK * SHARED // max(usual, 1)))


def shared(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    window, negative, size = settings[0], settings[2], 64 * len(weights[2])
    found = windows(text, piece, settings, tables[0])
    rows, costs = np.empty(2 * window + 4 + 2 * SHARED, np.int64), np.ones((2 * window + 2, 2))
    # Copies of the noise rows and of the block's inputs, an error, and two rows for a mean.
    copies = aligned_rows(SHARED + BLOCK + 3, size // 4)
    buffers = copies, aligned_rows(BLOCK, SHARED), aligned_rows(1, 2 * window + 16), rows, costs
    costs[:, 0] = 0.0
    n_terms = _train_shared(weights, found, (piece, settings), tables, buffers)
    loss = costs[-1, 0] - np.log(costs[-1, 1])
    # Noise terms are summed by window width m, since each counts m * negative / SHARED.
    for m in range(len(costs) - 1):
        loss += (costs[m, 0] - np.log(costs[m, 1])) * m * negative / SHARED
    return loss, n_terms * (1 + negative), found[5] - found[4]


@no_refcount
def _train_shared(weights: Any, found: Any, job: Any, tables: Any, buffers: Any) -> Any:
    (inputs, outputs, lanes), (words, at, left, right, begin, end), (piece, settings) = weights, found, job
    pool, all_steps, scores, rows, costs = buffers
    # Raw addresses: numba would check bounds and count references.
    window, size, x_of, o_of = settings[0], 64 * len(lanes), inputs.ctypes.data, outputs.ctypes.data
    copies, steps_of, near = pool.ctypes.data, all_steps.ctypes.data, scores[0]
    centres, error = copies + size * SHARED, copies + size * (SHARED + BLOCK)
    near_of, chosen = near.ctypes.data, rows[2 * window + 4 :]
    # Each shared word counts as negative / SHARED of a drawn one.
    n_terms, share, now, length = 0, np.float32(settings[2] / SHARED), 0, block_length(settings)
    if begin < end:
        draw_negatives(lanes, o_of, noise_key(piece, at[begin]), tables, chosen, (0, SHARED))
    for block in range(begin, end, length):
        last = min(block + length, end)
        for k in range(SHARED):
            copy_row(lanes, copies + size * k, o_of + size * item(chosen, now + k))
        # Two halves take turns: one is in use while the next block's rows are prefetched.
        later = SHARED - now
        for k in range(SHARED if last < end else 0):
            bits = random_bits(noise_key(piece, item(at, last)), np.uint64(k))
            chosen[np.uint64(later + k)] = drawn(bits, tables[1], tables[2])
        for i in range(block, last):
            for k in range((i - block) * SHARED // length, (i - block + 1) * SHARED // length if last < end else 0):
                prefetch(lanes, o_of + size * item(chosen, later + k))  # all at once would be more than it can wait for
            if i + 1 < end:
                prefetch_input(lanes, x_of, item(words, i + 1), tables)
            if i + window + 1 < end:
                prefetch(lanes, o_of + size * item(words, i + window + 1))
            m, n_before = item(left, i) + item(right, i), item(left, i)
            for k in range(m):
                rows[np.uint64(k)] = item(words, i - n_before + k + (k >= n_before))
            # The learning rate falls within a piece.
            word, alpha = item(words, i), learning_rate(piece, item(at, i))
            x = load_input(lanes, x_of, word, tables, error + size)
            x_kept, steps = centres + size * (i - block), steps_of + 4 * SHARED * (i - block)
            n_terms += m
            # The input as it was before its step: noise rows move by it at the end of the block.
            copy_row(lanes, x_kept, x)
            clear(lanes, error)
            for k in range(0, SHARED, 16):
                dots16(lanes, copies + size * k, x_kept, steps + 4 * k)
            add_nll(costs, np.uint64(m), slopes32(steps, MINUS_ONE, alpha * share * np.float32(m)))
            weigh(lanes, copies, SHARED, (steps, 4), error)
            # The window's own words, exactly.
            dots(lanes, o_of, rows, m, x_kept, near)
            for k in range(0, m, 16):
                add_nll(
                    costs, np.uint64(2 * window + 1), slopes(near_of + 4 * k, min(16, m - k), ONE, alpha, _NO_LIMIT)
                )
            update(lanes, o_of, rows, m, (x_kept, error), near)
            add_to_row(lanes, x, ONE, error)
            store_input(lanes, x_of, word, tables, error + size)
        for k in range(SHARED):
            # One read and one write per noise row and block: the gain over ``pairs``.
            weigh(lanes, centres, last - block, (steps_of + 4 * k, 4 * SHARED), o_of + size * item(chosen, now + k))
        now = SHARED - now
    return n_terms


def pairs(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    negatives = np.empty(4 * settings[0] * settings[2], np.int64)
    return _train(weights, windows(text, piece, settings, tables[0]), (piece, settings), tables, negatives)


def pairs_with_paths(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    return _train(weights, windows(text, piece, settings, tables[0]), (piece, settings), tables, None)


@inline
def _train(weights: Any, found: Any, job: Any, tables: Any, negatives: Any) -> Any:
    # An error, and two rows for a mean; room for 16 nodes of a path, or for all negatives of a word.
    pool, scores = aligned_rows(3, 16 * len(weights[2])), aligned_rows(1, job[1][2] + 32)
    rows, costs = np.zeros(job[1][2] + 20, np.int64), np.ones((1, 2))
    costs[0, 0] = 0.0
    n_terms = _train_pairs(weights, found, job, (tables, pool, rows, scores[0], costs), negatives)
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, found[5] - found[4]


@no_refcount
def _train_pairs(weights: Any, found: Any, job: Any, buffers: Any, negatives: Any) -> Any:
    (inputs, outputs, lanes), (words, at, left, right, begin, end), (piece, settings) = weights, found, job
    tables, pool, rows, scores, costs = buffers
    window, negative, x_of, o_of = settings[0], settings[2], inputs.ctypes.data, outputs.ctypes.data
    error, mean = pool.ctypes.data, pool.ctypes.data + 64 * len(lanes)
    n_terms, now, half = 0, 0, 2 * window * negative
    for i in range(begin - 1, end):
        # Two halves: negatives of this centre, and those drawn ahead for the next.
        now = half - now
        if i + 1 < end:
            prefetch_input(lanes, x_of, item(words, i + 1), tables)
            span = (half - now, half - now + (item(left, i + 1) + item(right, i + 1)) * negative)
            draw_negatives(lanes, o_of, noise_key(piece, item(at, i + 1)), tables, negatives, span)
        if i < begin:
            continue
        if i + window + 1 < end:
            prefetch_outputs(lanes, o_of, item(words, i + window + 1), tables, negatives)
        centre = item(words, i)
        # The centre's input serves its whole window and is written back once.
        x = load_input(lanes, x_of, centre, tables, mean)
        step, first = (x, error, learning_rate(piece, item(at, i)), tables, rows, scores, costs), now
        for j in range(i - item(left, i), i + item(right, i) + 1):
            if j != i:
                n_terms += train_outputs(lanes, o_of, item(words, j), negatives, (first, first + negative), step)
                add_to_row(lanes, x, ONE, error)
                first += negative
        store_input(lanes, x_of, centre, tables, mean)
    return n_terms
