"""Input vectors of words: its own row, or with subwords the mean of its own and its n-grams' rows.

As fastText has it (Bojanowski et al. 2017, section 3.2), each of the rows moves by the whole error, so their mean moves
by it too: a loop may work on the mean as if it were a row, and what it was moved by is given to all of the rows in the
end. ``tables`` are ``Tables.arrays()``; where its lists of rows are empty, no subwords.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attnkit.kernels.jit import inline
from attnkit.kernels.vector import add_to_row, add_to_rows, clear, prefetch, sum_rows

STARTS, ROWS = 6, 7
"""Which of the tables hold the lists."""
_ONE, _MINUS = np.float32(1.0), np.float32(-1.0)


@inline
def load_input(lanes: Any, matrix: Any, word: Any, tables: Any, room: Any) -> Any:
    """Return the address of a word's input, for reading and writing; ``room`` is that of two rows, used for a mean."""
    starts, size = tables[STARTS], 64 * len(lanes)
    if len(starts) == 0:
        # Without subwords a word's input is its row: no copy.
        return matrix + size * np.int64(word)
    begin, end = starts[word], starts[word + 1]
    sum_rows(lanes, matrix, tables[ROWS][begin:end], end - begin, _ONE / np.float32(end - begin), room)
    clear(lanes, room + size)
    # The copy is kept for store_input.
    add_to_row(lanes, room + size, _ONE, room)
    return np.int64(room)


@inline
def store_input(lanes: Any, matrix: Any, word: Any, tables: Any, room: Any) -> None:
    """Add the change since ``load_input`` to all of the word's rows."""
    starts = tables[STARTS]
    if len(starts) > 0:
        begin, end = starts[word], starts[word + 1]
        # Second row of `room`: the mean as loaded, so that the difference is what the loop changed.
        add_to_row(lanes, room, _MINUS, room + 64 * len(lanes))
        add_to_rows(lanes, matrix, tables[ROWS][begin:end], end - begin, _ONE, room)


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
def longest_input(words: Any, reach: Any, span: Any, tables: Any) -> Any:
    """Return how many rows the input of a word has at most, among centres of a span and what their windows reach."""
    starts, most = tables[STARTS], 1
    if len(starts) == 0:
        return most
    # Window sizes per centre.
    left, right = reach
    # First and last word that any window of the span covers.
    low, high = span[0], span[1] - 1
    for i in range(span[0], span[1]):
        # Words of the windows at the edges are outside of the span.
        low, high = min(low, i - left[i]), max(high, i + right[i])
    for word in words[low : high + 1]:
        most = max(most, starts[word + 1] - starts[word])
    return most


@inline
def rows_around(words: Any, i: Any, reach: Any, tables: Any, rows: Any) -> Any:
    """Write the rows of all words of a window into ``rows`` and return how many they are."""
    starts, n = tables[STARTS], 0
    for j in range(i - reach[0], i + reach[1] + 1):
        if j == i:
            continue
        if len(starts) == 0:
            rows[n] = words[j]
            n += 1
        else:
            for k in range(starts[words[j]], starts[words[j] + 1]):
                rows[n] = tables[ROWS][k]
                n += 1
    return n
