"""Continuous bag of words with negative sampling, with and without subwords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from attnkit.kernels.jit import inline, no_refcount
from attnkit.kernels.logistic import slopes
from attnkit.kernels.sampling import drawn, number
from attnkit.kernels.skip_gram import NOISE, add_nll, alpha_at, context, scratch
from attnkit.kernels.subword import ROWS, STARTS, prefetch_input
from attnkit.kernels.vector import add_to_row, add_to_rows, clear, dots, item, prefetch, sum_rows, update
from attnkit.kernels.windows import windows
from attnkit.kernels.word2vec import LoopSpec

# Letters: V words, P floats of a padded row, m words of a context. Addresses are bytes: a row takes 64 bytes per 16
# floats.
AHEAD = 2
"""Words of lead with which negatives are drawn and their rows prefetched."""
AHEAD_AROUND = 4
"""Words of lead with which rows of the context are prefetched, beyond the window."""
FARTHEST = np.float32(6.0)
_ONE, _MINUS = np.float32(1.0), np.float32(-1.0)


def loop(recipe: LoopSpec) -> Callable[..., Any]:
    """Return the training loop; mean and sum differ by a knob only."""
    return _loop_subwords if recipe.subwords else _loop


@inline
def prefetch_outputs(lanes: Any, outputs: Any, word: Any, negatives: Any, given: Any) -> None:
    """Draw a word's negatives and ask for all rows it needs. ``given`` is (the epoch's key, its position, tables)."""
    # XOR with NOISE: negatives never share random numbers with window sizes.
    # tables[1:3] are the alias table of the noise distribution.
    key, position, tables = given
    noise, size = number(np.uint64(key) ^ NOISE, np.uint64(position)), 64 * len(lanes)
    for k in range(len(negatives)):
        row = drawn(number(noise, np.uint64(k)), tables[1], tables[2])
        negatives[np.uint64(k)] = row
        prefetch(lanes, outputs + size * row)
    prefetch(lanes, outputs + size * word)


@inline
def train_outputs(lanes: Any, outputs: Any, word: Any, negatives: Any, given: Any) -> Any:
    """Tell a word from negatives: move their outputs, and set the input's error. Return how many terms that are.

    ``given`` is (the input's address, the error's, alpha, room for the rows, room for the scores, costs).
    """
    x, error, alpha, rows, scores, costs = given  # scratch memory of the caller
    # The target first, then negatives; one equal to the target is overwritten by the next (no branch).
    rows[0], n = word, np.uint64(1)
    for k in range(len(negatives)):
        row = item(negatives, k)
        rows[n] = row
        n += np.uint64(row != word)
    count = np.int64(n)
    # scores[k] = o_k·x, then its slope, then the update of both sides.
    dots(lanes, outputs, rows, count, x, scores)
    scores[0] = -scores[0]  # σ(f) is 1 - σ(-f): so the word is of one kind with the negatives
    # 16 scores at a time, the lanes of one vector.
    for k in range(0, count, 16):
        got = slopes(scores.ctypes.data + 4 * k, min(16, count - k), _MINUS, alpha, FARTHEST)
        add_nll(costs, np.uint64(0), got)
    scores[0] = -scores[0]
    clear(lanes, error)
    update(lanes, outputs, rows, count, (x, error), scores)
    return count


def _loop(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    # Buffers are made here, outside of the function without reference counts, which cannot allocate.
    window, negative, width = knobs[0], knobs[2], 16 * len(weights[2])
    found = windows(text, work, knobs, tables[0])
    pool, costs = (scratch(2, width), scratch(1, negative + 32)), np.ones((1, 2))
    rows, targets = np.zeros(2 * window + 4, np.int64), np.zeros(negative + 5, np.int64)
    negatives = np.zeros((AHEAD + 1) * negative, np.int64)
    costs[0, 0] = 0.0
    n_terms = _train(weights, (work, knobs, found), tables, (pool, rows, targets, negatives, costs))
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, found[5] - found[4]


@no_refcount
def _train(weights: Any, given: Any, tables: Any, room: Any) -> Any:
    inputs, outputs, lanes = weights
    work, knobs, (words, at, left, right, first, last) = given
    window, negative, mean = knobs[0], knobs[2], knobs[3]
    pool, rows, targets, negatives, costs = room
    size, x_of, o_of, scores, n_terms = 64 * len(lanes), inputs.ctypes.data, outputs.ctypes.data, pool[1][0], 0
    hidden, error = pool[0].ctypes.data, pool[0].ctypes.data + size
    for i in range(first - AHEAD, last):
        # A ring of AHEAD + 1 slots holds the negatives of the coming words.
        soon = i + AHEAD
        if soon < last:
            place = negative * (soon % (AHEAD + 1))
            drawing = (work[2], item(at, soon), tables)
            prefetch_outputs(lanes, o_of, item(words, soon), negatives[place : place + negative], drawing)
        if i < first:
            continue
        if i + window + AHEAD_AROUND < last:
            prefetch(lanes, x_of + size * item(words, i + window + AHEAD_AROUND))
        # Rows of the context, without the centre.
        m = context(words, i, (item(left, i), item(right, i)), rows)
        # A line of one word, or a window that subsampling left empty.
        if m == 0:
            continue
        # Mean: input scaled by 1/m, error whole to each row; sum: the other way round (gensim).
        share, place = _ONE / np.float32(m), negative * (i % (AHEAD + 1))
        order = (hidden, error, alpha_at(work, item(at, i)), targets, scores, costs)
        # h, the mean or the sum of the context.
        sum_rows(lanes, x_of, rows, m, share if mean else _ONE, hidden)
        n_terms += train_outputs(lanes, o_of, item(words, i), negatives[place : place + negative], order)
        add_to_rows(lanes, x_of, rows, m, _ONE if mean else share, error)
    return n_terms


@inline
def _load_input(lanes: Any, inputs: Any, word: Any, tables: Any, place: Any) -> None:
    """Add up a word's rows at ``place``, and begin to gather what it is moved by in the row after it."""
    begin, end = tables[STARTS][word], tables[STARTS][word + 1]
    sum_rows(lanes, inputs, tables[ROWS][begin:end], end - begin, _ONE, place)
    clear(lanes, place + 64 * len(lanes))


@inline
def _store_input(lanes: Any, inputs: Any, word: Any, tables: Any, place: Any) -> None:
    """Give a word's rows what it was moved by."""
    begin, end = tables[STARTS][word], tables[STARTS][word + 1]
    add_to_rows(lanes, inputs, tables[ROWS][begin:end], end - begin, _ONE, place + 64 * len(lanes))


@inline
def _reached(left: Any, right: Any, first: Any, last: Any) -> Any:
    """Return the first word that any window reaches, and the end of them."""
    # Centres of the piece, then what their windows add on both sides.
    low, high = first, last
    for i in range(first, last):
        low, high = min(low, i - left[i]), max(high, i + right[i] + 1)
    return low, high


@inline
def _around(words: Any, i: Any, reach: Any, tables: Any, slots: Any) -> Any:
    """Write the places of a window's words into ``slots`` (2 window + 1 in all), return how many rows they have."""
    m, n_rows, n_slots = np.uint64(0), 0, len(slots)
    for j in range(i - reach[0], i + reach[1] + 1):
        if j != i:
            # Two rows per place: the sum, and what the word was moved by.
            slots[m] = 2 * (j % n_slots)
            m += np.uint64(1)
            n_rows += _n_rows(item(words, j), tables)
    return n_rows


@inline
def _n_rows(word: Any, tables: Any) -> Any:
    return item(tables[STARTS], word + 1) - item(tables[STARTS], word)


@inline
def _move(lanes: Any, kept: Any, words: Any, i: Any, given: Any) -> None:
    """Move each word of a window by ``scale`` times an error; a word's sum holds it once for each of its rows.

    ``given`` is (the window's reach, tables, the error's address, scale, how many places there are).
    """
    reach, tables, error, scale, n_slots = given
    size = 64 * len(lanes)
    for j in range(i - reach[0], i + reach[1] + 1):
        if j != i:
            place = kept + 2 * size * (j % n_slots)
            # Each of the n rows moves by the error, so their sum moves by n times it.
            add_to_row(lanes, place, scale * np.float32(_n_rows(item(words, j), tables)), error)
            add_to_row(lanes, place + size, scale, error)


def _loop_subwords(weights: Any, text: Any, work: Any, knobs: Any, tables: Any) -> Any:
    """Train on a piece (``word2vec.Loops``)."""
    window, negative, width = knobs[0], knobs[2], 16 * len(weights[2])
    found = windows(text, work, knobs, tables[0])
    pool, costs = (scratch(4 * window + 4, width), scratch(1, negative + 32)), np.ones((1, 2))
    slots, targets = np.zeros(2 * window + 1, np.int64), np.zeros(negative + 5, np.int64)
    negatives = np.zeros((AHEAD + 1) * negative, np.int64)
    costs[0, 0] = 0.0
    n_terms = _train_subwords(weights, (work, knobs, found), tables, (pool, slots, targets, negatives, costs))
    return costs[0, 0] - np.log(costs[0, 1]), n_terms, found[5] - found[4]


@no_refcount
def _train_subwords(weights: Any, given: Any, tables: Any, room: Any) -> Any:
    inputs, outputs, lanes = weights
    work, knobs, (words, at, left, right, first, last) = given
    window, negative, mean = knobs[0], knobs[2], knobs[3]
    pool, slots, targets, negatives, costs = room
    size, x_of, o_of, scores, n_terms = 64 * len(lanes), inputs.ctypes.data, outputs.ctypes.data, pool[1][0], 0
    kept, n_slots = pool[0].ctypes.data, 2 * window + 1
    hidden, error = kept + 2 * size * n_slots, kept + 2 * size * n_slots + size
    # Words at the edges of the piece are reached by windows but are not centres.
    low, high = _reached(left, right, first, last)
    entered = low
    for i in range(first - AHEAD, last):
        soon = i + AHEAD
        if soon < last:
            place, drawing = negative * (soon % (AHEAD + 1)), (work[2], item(at, soon), tables)
            prefetch_outputs(lanes, o_of, item(words, soon), negatives[place : place + negative], drawing)
        if i < first:
            continue
        while entered < min(high, i + window + 1):
            slot = kept + 2 * size * (entered % n_slots)
            # A ring of 2 window + 1 places: a word is written back when another needs its place.
            if entered - n_slots >= low:
                _store_input(lanes, x_of, item(words, entered - n_slots), tables, slot)
            _load_input(lanes, x_of, item(words, entered), tables, slot)
            entered += 1
            if entered + AHEAD_AROUND < high:
                prefetch_input(lanes, x_of, item(words, entered + AHEAD_AROUND), tables)
        reach, place = (item(left, i), item(right, i)), negative * (i % (AHEAD + 1))
        if reach[0] + reach[1] == 0:
            continue
        # A mean over rows, so over words and their n-grams alike (fastText).
        share = _ONE / np.float32(_around(words, i, reach, tables, slots))
        order = (hidden, error, alpha_at(work, item(at, i)), targets, scores, costs)
        sum_rows(lanes, kept, slots, reach[0] + reach[1], share if mean else _ONE, hidden)
        n_terms += train_outputs(lanes, o_of, item(words, i), negatives[place : place + negative], order)
        _move(lanes, kept, words, i, (reach, tables, error, _ONE if mean else share, n_slots))
    # Words that are still in the ring at the end of the piece.
    for j in range(max(low, entered - n_slots), entered):
        _store_input(lanes, x_of, item(words, j), tables, kept + 2 * size * (j % n_slots))
    return n_terms
