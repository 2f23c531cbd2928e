"""Continuous bag of words: the mean or sum of a context's inputs against the output of the word in its middle.

Loops take (weights, text, piece, settings, tables), as ``word2vec`` has them. Each is two functions: the outer one
makes all arrays, since the inner one counts no references and so cannot.
"""

from typing import Any

import numpy as np

from attnkit.kernels.jit import inline, no_refcount
from attnkit.kernels.layers import (
    ONE,
    ROWS,
    STARTS,
    aligned_rows,
    context_rows,
    covered_words,
    draw_negatives,
    learning_rate,
    max_input_rows,
    noise_key,
    prefetch_input,
    prefetch_outputs,
    train_outputs,
)
from attnkit.kernels.sampling import windows
from attnkit.kernels.vector import add_to_row, add_to_rows, clear, item, sum_rows

# Letters: V words, P floats of a padded row, m rows of a context. Addresses are bytes: a row takes 64 bytes per 16
# floats.
AHEAD = 2  #: words of lead with which negatives are drawn and their rows prefetched
AHEAD_AROUND = 4  #: words of lead with which rows of the context are prefetched, beyond the window


def bags(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    negatives = np.zeros((AHEAD + 1) * settings[2], np.int64)
    return _train(weights, windows(text, piece, settings, tables[0]), (piece, settings), tables, negatives)


def bags_with_paths(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    return _train(weights, windows(text, piece, settings, tables[0]), (piece, settings), tables, None)


@inline
def _train(weights: Any, found: Any, job: Any, tables: Any, negatives: Any) -> Any:
    words, _, left, right, first, last = found
    low, high = covered_words(left, right, first, last)
    # With subwords a context word has several rows: room for the most of any, over both sides.
    around = np.zeros(2 * job[1][0] * max_input_rows(words[low:high], tables) + 4, np.int64)
    pool, scores = aligned_rows(2, 16 * len(weights[2])), aligned_rows(1, job[1][2] + 32)
    rows, costs = np.zeros(job[1][2] + 20, np.int64), np.ones((1, 2))
    costs[0, 0] = 0.0
    n_terms = _train_bags(weights, found, job, (tables, pool, around, rows, scores[0], costs), negatives)
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, last - first


@no_refcount
def _train_bags(weights: Any, found: Any, job: Any, buffers: Any, negatives: Any) -> Any:
    (inputs, outputs, lanes), (words, at, left, right, first, last), (piece, settings) = weights, found, job
    tables, pool, around, rows, scores, costs = buffers
    (window, _, negative, mean), x_of, o_of = settings, inputs.ctypes.data, outputs.ctypes.data
    hidden, error, n_terms = pool.ctypes.data, pool.ctypes.data + 64 * len(lanes), 0
    for i in range(first - AHEAD, last):
        # A ring of AHEAD + 1 slots holds the negatives of the coming words.
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
        # Mean: input scaled by 1/m, error whole to each row; sum: the other way round (gensim).
        share, slot = ONE / np.float32(m), negative * (i % (AHEAD + 1))
        step = (hidden, error, learning_rate(piece, item(at, i)), tables, rows, scores, costs)
        # h, the mean or the sum of the context.
        sum_rows(lanes, x_of, around, m, share if mean else ONE, hidden)
        n_terms += train_outputs(lanes, o_of, item(words, i), negatives, (slot, slot + negative), step)
        add_to_rows(lanes, x_of, around, m, ONE if mean else share, error)
    return n_terms


# --- negative sampling with subwords: the words that a window may cover stand added up in a ring


@inline
def _enter(lanes: Any, inputs: Any, word: Any, tables: Any, place: Any) -> None:
    """Add up a word's rows at ``place``, and begin to gather what it is moved by in the row after it."""
    begin, end = tables[STARTS][word], tables[STARTS][word + 1]
    sum_rows(lanes, inputs, tables[ROWS][begin:end], end - begin, ONE, place)
    clear(lanes, place + 64 * len(lanes))


@inline
def _leave(lanes: Any, inputs: Any, word: Any, tables: Any, place: Any) -> None:
    """Give a word's rows what it was moved by."""
    begin, end = tables[STARTS][word], tables[STARTS][word + 1]
    add_to_rows(lanes, inputs, tables[ROWS][begin:end], end - begin, ONE, place + 64 * len(lanes))


@inline
def _n_rows(word: Any, tables: Any) -> Any:
    return item(tables[STARTS], word + 1) - item(tables[STARTS], word)


def bags_of_subwords(weights: Any, text: Any, piece: Any, settings: Any, tables: Any) -> Any:
    window, negative, width = settings[0], settings[2], 16 * len(weights[2])
    found = windows(text, piece, settings, tables[0])
    pool, scores = aligned_rows(4 * window + 4, width), aligned_rows(1, negative + 32)
    slots, rows = np.zeros(2 * window + 1, np.int64), np.zeros(negative + 5, np.int64)
    negatives, costs = np.zeros((AHEAD + 1) * negative, np.int64), np.ones((1, 2))
    costs[0, 0] = 0.0
    buffers = pool, slots, rows, scores[0], negatives, costs
    n_terms = _train_bags_of_subwords(weights, found, (piece, settings), tables, buffers)
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, found[5] - found[4]


@no_refcount
def _train_bags_of_subwords(weights: Any, found: Any, job: Any, tables: Any, buffers: Any) -> Any:
    (inputs, outputs, lanes), (words, at, left, right, first, last), (piece, settings) = weights, found, job
    pool, slots, rows, scores, negatives, costs = buffers
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
            # A ring of 2 window + 1 places: a word is written back when another needs its place.
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
                # Two rows per place: the sum, and what the word was moved by.
                slots[m] = 2 * (j % n_slots)
                m += np.uint64(1)
                n_rows += _n_rows(item(words, j), tables)
        # A mean over rows, so over words and their n-grams alike (fastText).
        share, slot = ONE / np.float32(n_rows), negative * (i % (AHEAD + 1))
        step = (hidden, error, learning_rate(piece, item(at, i)), tables, rows, scores, costs)
        sum_rows(lanes, ring, slots, np.int64(m), share if mean else ONE, hidden)
        n_terms += train_outputs(lanes, o_of, item(words, i), negatives, (slot, slot + negative), step)
        scale = ONE if mean else share
        for j in range(begin, end):
            if j != i:
                place = ring + 2 * size * (j % n_slots)
                # Each of the n rows moves by the error, so their sum moves by n times it.
                add_to_row(lanes, place, scale * np.float32(_n_rows(item(words, j), tables)), error)
                add_to_row(lanes, place + size, scale, error)
    # Words that are still in the ring at the end of the piece.
    for j in range(max(low, entered - n_slots), entered):
        _leave(lanes, x_of, item(words, j), tables, ring + 2 * size * (j % n_slots))
    return n_terms
