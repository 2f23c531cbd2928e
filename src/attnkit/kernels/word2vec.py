"""Training loops of word2vec.

Skip-gram trains the input row of a centre against the output rows of its window. ``pairs`` and ``pairs_with_paths``
train pair by pair (see ``layers``); ``pairs`` draws new negatives for every pair, as gensim does. In ``shared``,
``BLOCK`` centres share ``SHARED`` drawn words, each with the weight m negative / SHARED in a window of m words. The
expected loss is the same, but the drawn rows stay in the cache and are read and updated once per block.

CBOW (continuous bag of words) trains the mean or sum of a context's inputs against the output of the centre: ``bags``,
``bags_with_paths`` and ``bags_of_subwords``.

Loops take (weights, text, piece, settings, tables), as defined in ``word2vec_backend``. Each consists of two functions:
the outer one allocates all arrays, since the inner one has no reference counting and cannot.
"""

from typing import Any

import numpy as np

from attnkit.kernels.jit import inline, no_refcount
from attnkit.kernels.layers import (
    MINUS_ONE,
    ONE,
    ROWS,
    STARTS,
    add_nll,
    aligned_rows,
    context_rows,
    covered_words,
    draw_negatives,
    learning_rate,
    load_input,
    max_input_rows,
    noise_key,
    prefetch_input,
    prefetch_outputs,
    store_input,
    train_outputs,
)
from attnkit.kernels.logistic import slopes, slopes32
from attnkit.kernels.sampling import drawn, random_bits, windows
from attnkit.kernels.vector import (
    add_to_row,
    add_to_rows,
    clear,
    copy_row,
    dots,
    dots16,
    item,
    prefetch,
    sum_rows,
    update,
    weigh,
)

# Letters: V words, P floats of a padded row, m words of a window, or rows of a context. Addresses in bytes: a row
# takes 64 bytes per 16 floats.
BLOCK = 16  #: maximum number of centres that share noise words
SHARED = 32  #: noise words per block, as many as ``slopes32`` takes; fewer than 20 reduce quality
AHEAD = 2  #: number of words ahead at which CBOW draws negatives and prefetches their rows
AHEAD_AROUND = 4  #: number of words beyond the window at which context rows are prefetched
_NO_LIMIT = np.float32(np.inf)


@inline
def _buffers(weights: Any, settings: Any, n: Any) -> Any:
    """Return buffers: n rows, row numbers, scores, and (loss sum, pending product)."""
    costs = np.ones((1, 2))
    costs[0, 0] = 0.0
    pool, scores = aligned_rows(n, 16 * len(weights[2])), aligned_rows(1, settings[2] + 32)
    # Room for a word and all its negatives, or for 16 nodes of a path.
    return pool, np.zeros(settings[2] + 20, np.int64), scores[0], costs


# --- skip-gram


@inline
def block_length(settings: Any) -> Any:
    """Return how many centres share noise words, at most ``BLOCK``.

    Wide windows or many negatives reduce it: noise rows change only at the end of a block, and by little.
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
    # Each shared word has negative / SHARED of the weight of a drawn word.
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
                prefetch(lanes, o_of + size * item(chosen, later + k))  # all at once exceed the CPU's load queue
            if i + 1 < end:
                prefetch_input(lanes, x_of, item(words, i + 1), tables)
            if i + window + 1 < end:
                prefetch(lanes, o_of + size * item(words, i + window + 1))
            m, n_before = item(left, i) + item(right, i), item(left, i)
            for k in range(m):
                rows[np.uint64(k)] = item(words, i - n_before + k + (k >= n_before))
            # The learning rate decreases within a piece.
            word, alpha = item(words, i), learning_rate(piece, item(at, i))
            x = load_input(lanes, x_of, word, tables, error + size)
            x_kept, steps = centres + size * (i - block), steps_of + 4 * SHARED * (i - block)
            n_terms += m
            # The input before its update: noise rows are updated with it at the end of the block.
            copy_row(lanes, x_kept, x)
            clear(lanes, error)
            for k in range(0, SHARED, 16):
                dots16(lanes, copies + size * k, x_kept, steps + 4 * k)
            add_nll(costs, np.uint64(m), slopes32(steps, MINUS_ONE, alpha * share * np.float32(m)))
            weigh(lanes, copies, SHARED, (steps, 4), error)
            # The words of the window itself, which are not sampled.
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
    return _in_pairs(weights, windows(text, piece, settings, tables[0]), (piece, settings), tables, negatives)


def pairs_with_paths(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    return _in_pairs(weights, windows(text, piece, settings, tables[0]), (piece, settings), tables, None)


@inline
def _in_pairs(weights: Any, found: Any, job: Any, tables: Any, negatives: Any) -> Any:
    buffers = _buffers(weights, job[1], 3)  # an error, and two rows for a mean
    n_terms, costs = _train_pairs(weights, found, job, (tables, buffers), negatives), buffers[3]
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, found[5] - found[4]


@no_refcount
def _train_pairs(weights: Any, found: Any, job: Any, buffers: Any, negatives: Any) -> Any:
    (inputs, outputs, lanes), (words, at, left, right, begin, end), (piece, settings) = weights, found, job
    tables, (pool, rows, scores, costs) = buffers
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
        # The centre's input is used for its whole window and written back once.
        x = load_input(lanes, x_of, centre, tables, mean)
        step, first = (x, error, learning_rate(piece, item(at, i)), tables, rows, scores, costs), now
        for j in range(i - item(left, i), i + item(right, i) + 1):
            if j != i:
                n_terms += train_outputs(lanes, o_of, item(words, j), negatives, (first, first + negative), step)
                add_to_row(lanes, x, ONE, error)
                first += negative
        store_input(lanes, x_of, centre, tables, mean)
    return n_terms


# --- CBOW


def bags(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    negatives = np.zeros((AHEAD + 1) * settings[2], np.int64)
    return _in_bags(weights, windows(text, piece, settings, tables[0]), (piece, settings), tables, negatives)


def bags_with_paths(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    return _in_bags(weights, windows(text, piece, settings, tables[0]), (piece, settings), tables, None)


@inline
def _in_bags(weights: Any, found: Any, job: Any, tables: Any, negatives: Any) -> Any:
    words, _, left, right, first, last = found
    low, high = covered_words(left, right, first, last)
    # With subwords, a context word has several rows: room for the maximum, on both sides.
    around = np.zeros(2 * job[1][0] * max_input_rows(words[low:high], tables) + 4, np.int64)
    buffers = _buffers(weights, job[1], 2)
    n_terms, costs = _train_bags(weights, found, job, (tables, around, buffers), negatives), buffers[3]
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, last - first


@no_refcount
def _train_bags(weights: Any, found: Any, job: Any, buffers: Any, negatives: Any) -> Any:
    (inputs, outputs, lanes), (words, at, left, right, first, last), (piece, settings) = weights, found, job
    tables, around, (pool, rows, scores, costs) = buffers
    (window, _, negative, mean), x_of, o_of = settings, inputs.ctypes.data, outputs.ctypes.data
    hidden, error, n_terms = pool.ctypes.data, pool.ctypes.data + 64 * len(lanes), 0
    for i in range(first - AHEAD, last):
        # A ring of AHEAD + 1 slots holds the negatives of the next words.
        soon, slot = i + AHEAD, negative * ((i + AHEAD) % (AHEAD + 1))
        if soon < last:
            key = noise_key(piece, item(at, soon))
            draw_negatives(lanes, o_of, key, tables, negatives, (slot, slot + negative))
            prefetch_outputs(lanes, o_of, item(words, soon), tables, negatives)
        if i < first:
            continue
        if i + window + AHEAD_AROUND < last:
            prefetch_input(lanes, x_of, item(words, i + window + AHEAD_AROUND), tables)
        # Rows of the context, without the centre.
        m = context_rows(words, i, (item(left, i), item(right, i)), tables, around)
        # A line of one word, or a window that subsampling left empty.
        if m == 0:
            continue
        # Mean: the input is scaled by 1/m, each row gets the whole error. Sum: the reverse, as in gensim.
        share, slot = ONE / np.float32(m), negative * (i % (AHEAD + 1))
        step = (hidden, error, learning_rate(piece, item(at, i)), tables, rows, scores, costs)
        # h, the mean or the sum of the context.
        sum_rows(lanes, x_of, around, m, share if mean else ONE, hidden)
        n_terms += train_outputs(lanes, o_of, item(words, i), negatives, (slot, slot + negative), step)
        add_to_rows(lanes, x_of, around, m, ONE if mean else share, error)
    return n_terms


# --- negative sampling with subwords: a ring holds the row sums of all words that a window may cover


@inline
def _enter(lanes: Any, inputs: Any, word: Any, tables: Any, place: Any) -> None:
    """Write the sum of a word's rows to ``place`` and clear its update, the next row."""
    begin, end = tables[STARTS][word], tables[STARTS][word + 1]
    sum_rows(lanes, inputs, tables[ROWS][begin:end], end - begin, ONE, place)
    clear(lanes, place + 64 * len(lanes))


@inline
def _leave(lanes: Any, inputs: Any, word: Any, tables: Any, place: Any) -> None:
    """Add the accumulated update of a word to its rows."""
    begin, end = tables[STARTS][word], tables[STARTS][word + 1]
    add_to_rows(lanes, inputs, tables[ROWS][begin:end], end - begin, ONE, place + 64 * len(lanes))


@inline
def _n_rows(word: Any, tables: Any) -> Any:
    return item(tables[STARTS], word + 1) - item(tables[STARTS], word)


def bags_of_subwords(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    window, found = settings[0], windows(text, piece, settings, tables[0])
    slots, negatives = np.zeros(2 * window + 1, np.int64), np.zeros((AHEAD + 1) * settings[2], np.int64)
    buffers = _buffers(weights, settings, 4 * window + 4)
    n_terms = _train_bags_of_subwords(weights, found, (piece, settings), tables, (slots, negatives, buffers))
    costs = buffers[3]
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, found[5] - found[4]


@no_refcount
def _train_bags_of_subwords(weights: Any, found: Any, job: Any, tables: Any, buffers: Any) -> Any:
    (inputs, outputs, lanes), (words, at, left, right, first, last), (piece, settings) = weights, found, job
    slots, negatives, (pool, rows, scores, costs) = buffers
    (window, _, negative, mean), x_of, o_of = settings, inputs.ctypes.data, outputs.ctypes.data
    size, ring, n_slots, n_terms = 64 * len(lanes), pool.ctypes.data, 2 * window + 1, 0
    hidden, error = ring + 2 * size * n_slots, ring + 2 * size * n_slots + size
    # Words at the edges of the piece are reached by windows but are not centres.
    low, high = covered_words(left, right, first, last)
    entered = low
    for i in range(first - AHEAD, last):
        soon, slot = i + AHEAD, negative * ((i + AHEAD) % (AHEAD + 1))
        if soon < last:
            key = noise_key(piece, item(at, soon))
            draw_negatives(lanes, o_of, key, tables, negatives, (slot, slot + negative))
            prefetch_outputs(lanes, o_of, item(words, soon), tables, negatives)
        if i < first:
            continue
        while entered < min(high, i + window + 1):
            place = ring + 2 * size * (entered % n_slots)
            # A ring of 2 window + 1 slots: a word is written back when another word needs its slot.
            if entered - n_slots >= low:
                _leave(lanes, x_of, item(words, entered - n_slots), tables, place)
            _enter(lanes, x_of, item(words, entered), tables, place)
            entered += 1
            if entered + AHEAD_AROUND < high:
                prefetch_input(lanes, x_of, item(words, entered + AHEAD_AROUND), tables)
        begin, end = i - item(left, i), i + item(right, i) + 1
        if end - begin == 1:
            continue
        m, n_rows = np.uint64(0), 0
        for j in range(begin, end):
            if j != i:
                # Two rows per slot: the sum, and the update of the word.
                slots[m] = 2 * (j % n_slots)
                m += np.uint64(1)
                n_rows += _n_rows(item(words, j), tables)
        # The mean is over rows, of words and n-grams alike (fastText).
        share, slot = ONE / np.float32(n_rows), negative * (i % (AHEAD + 1))
        step = (hidden, error, learning_rate(piece, item(at, i)), tables, rows, scores, costs)
        sum_rows(lanes, ring, slots, np.int64(m), share if mean else ONE, hidden)
        n_terms += train_outputs(lanes, o_of, item(words, i), negatives, (slot, slot + negative), step)
        scale = ONE if mean else share
        for j in range(begin, end):
            if j != i:
                place = ring + 2 * size * (j % n_slots)
                # Each of the n rows changes by the error, so their sum changes by n times the error.
                add_to_row(lanes, place, scale * np.float32(_n_rows(item(words, j), tables)), error)
                add_to_row(lanes, place + size, scale, error)
    # Words that are still in the ring at the end of the piece.
    for j in range(max(low, entered - n_slots), entered):
        _leave(lanes, x_of, item(words, j), tables, ring + 2 * size * (j % n_slots))
    return n_terms
