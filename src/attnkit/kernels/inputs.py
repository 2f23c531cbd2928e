"""Inputs of the word2vec loops: a word's own row, or with subwords the rows of the word and its n-grams.

As fastText has it (Bojanowski et al. 2017, section 3.2), each of the rows moves by the whole error, so their mean moves
by it too: a loop may work on the mean as if it were a row, and what it was moved by is given to all of the rows in the
end. ``tables`` are ``LookupTables.arrays()``; without subwords their lists of rows are empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnkit.kernels.jit import inline
from attnkit.kernels.vector import add_to_row, add_to_rows, clear, item, prefetch, sum_rows

# Addresses are bytes: a row takes 64 bytes per 16 floats.
STARTS, ROWS = 6, 7  #: tables that hold the lists of rows
ONE, MINUS_ONE = np.float32(1.0), np.float32(-1.0)


@inline
def aligned_rows(n: Any, width: Any) -> Any:
    """Return zeros (n, width), each row at a multiple of 64 bytes."""
    raw = np.zeros(n * width + 16, np.float32)
    # Vectors are loaded aligned; numpy promises 16 bytes only.
    skip = (-raw.ctypes.data % 64) // 4
    return raw[skip : skip + n * width].reshape(n, width)


@inline
def load_input(lanes: Any, matrix: Any, word: Any, tables: Any, buffer: Any) -> Any:
    """Return the address of a word's input, for reading and writing; ``buffer`` is that of two rows, for a mean."""
    starts, size = tables[STARTS], 64 * len(lanes)
    if len(starts) == 0:
        # Without subwords a word's input is its row: no copy.
        return matrix + size * np.int64(word)
    begin, end = starts[word], starts[word + 1]
    sum_rows(lanes, matrix, tables[ROWS][begin:end], end - begin, ONE / np.float32(end - begin), buffer)
    clear(lanes, buffer + size)
    # The copy is kept for store_input.
    add_to_row(lanes, buffer + size, ONE, buffer)
    return np.int64(buffer)


@inline
def store_input(lanes: Any, matrix: Any, word: Any, tables: Any, buffer: Any) -> None:
    """Add the change since ``load_input`` to all of the word's rows."""
    starts = tables[STARTS]
    if len(starts) > 0:
        begin, end = starts[word], starts[word + 1]
        # Second row of the buffer: the mean as loaded, so that the difference is what the loop changed.
        add_to_row(lanes, buffer, MINUS_ONE, buffer + 64 * len(lanes))
        add_to_rows(lanes, matrix, tables[ROWS][begin:end], end - begin, ONE, buffer)


@inline
def prefetch_input(lanes: Any, matrix: Any, word: Any, tables: Any) -> None:
    """Ask for a word's rows, which are going to be worked on soon."""
    starts, size = tables[STARTS], 64 * len(lanes)
    if len(starts) == 0:
        prefetch(lanes, matrix + size * np.int64(word))
    else:
        for k in range(starts[word], starts[word + 1]):
            prefetch(lanes, matrix + size * np.int64(tables[ROWS][k]))


@inline
def covered_words(left: Any, right: Any, first: Any, last: Any) -> Any:
    """Return the first word that any window of the centres [first, last) covers, and the end of them."""
    # Words of the windows at the edges are outside of the piece.
    low, high = first, last
    for i in range(first, last):
        low, high = min(low, i - left[i]), max(high, i + right[i] + 1)
    return low, high


@inline
def max_input_rows(words: Any, tables: Any) -> Any:
    """Return how many rows the input of one of some words has at most."""
    starts, most = tables[STARTS], 1
    if len(starts) > 0:
        for word in words:
            most = max(most, starts[word + 1] - starts[word])
    return most


@inline
def context_rows(words: Any, i: Any, reach: Any, tables: Any, rows: Any) -> Any:
    """Write the rows of all words of a window into ``rows`` and return how many they are."""
    starts, n = tables[STARTS], np.uint64(0)
    for j in range(i - reach[0], i + reach[1] + 1):
        if j == i:
            continue
        word = item(words, j)
        if len(starts) == 0:
            rows[n] = word
            n += np.uint64(1)
        else:
            for k in range(item(starts, word), item(starts, word + 1)):
                rows[n] = item(tables[ROWS], k)
                n += np.uint64(1)
    return np.int64(n)
