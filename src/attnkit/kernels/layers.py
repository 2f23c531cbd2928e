"""Input and output layers of the word2vec loops.

Inputs: a word's own row, or with subwords the rows of the word and its n-grams. As fastText has it (Bojanowski et al.
2017, section 3.2), each of the rows moves by the whole error, so their mean moves by it too: a loop may work on the
mean as if it were a row, and what it was moved by is given to all of the rows in the end. ``tables`` are
``LookupTables``; without subwords their lists of rows are empty.

Negative sampling (Mikolov et al. 2013): for an input x and a word o the loss is -log σ(o·x) - Σ_k log σ(-n_k·x) over
words n drawn by count ** power; a drawn word that is o itself counts for nothing.

Hierarchical softmax (Morin and Bengio 2005; Mikolov et al. 2013, section 2.1): for a word whose path has the nodes v
and codes c the loss is -Σ log σ(±v·x), plus for code 0. As gensim has it, an output beyond ±6 moves nothing.

A loop chooses by what it passes as ``negatives``: a list for drawn words, or None for paths. numba drops the other
branch when it compiles, as None is a type of its own.
"""

from typing import Any

import numpy as np

from attnkit.kernels.jit import inline
from attnkit.kernels.logistic import slopes
from attnkit.kernels.sampling import drawn, random_bits
from attnkit.kernels.vector import add_to_row, add_to_rows, clear, dots, item, prefetch, sum_rows, update
from attnkit.kernels.word2vec_backend import rows

# Addresses are bytes: a row takes 64 bytes per 16 floats.
STARTS, ROWS = 6, 7  #: tables that hold the lists of rows
ONE, MINUS_ONE = np.float32(1.0), np.float32(-1.0)
NOISE = np.uint64(0x6E6F697365)  #: key of the stream that draws negatives, apart from that of window sizes
MAX_OUTPUT = np.float32(6.0)  #: scores at least this far from 0 have no gradient, as in gensim
_TINY = 1e-50

aligned_rows = inline(rows)


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


# --- outputs


@inline
def learning_rate(piece: Any, position: Any) -> Any:
    """Return the learning rate at a position of the piece (begin, end, key, first alpha, last alpha)."""
    # Linear between the first and the last.
    return np.float32(piece[3] + (piece[4] - piece[3]) * np.float32((position - piece[0]) / (piece[1] - piece[0])))


@inline
def add_nll(costs: Any, j: Any, chance: Any) -> Any:
    """Add -log chance to costs[j]; costs[j, 1] gathers a product so that few logarithms are taken."""
    costs[j, 1] *= chance
    # Not "<=": NaN takes this branch as well, so that a diverged loss is seen.
    if not costs[j, 1] > _TINY:
        costs[j, 0] -= np.log(costs[j, 1])
        costs[j, 1] = 1.0


@inline
def noise_key(piece: Any, position: Any) -> Any:
    """Return the key of the words drawn at a position."""
    # XOR with NOISE: negatives never share random numbers with window sizes.
    return random_bits(np.uint64(piece[2]) ^ NOISE, np.uint64(position))


@inline
def draw_negatives(lanes: Any, outputs: Any, key: Any, tables: Any, negatives: Any, span: Any) -> None:
    """Draw words into a span of ``negatives`` and ask for their rows; nothing with paths."""
    if negatives is not None:
        # tables[1:3] are the alias table of the noise distribution.
        for k in range(span[0], span[1]):
            row = drawn(random_bits(key, np.uint64(k - span[0])), tables[1], tables[2])
            negatives[np.uint64(k)] = row
            prefetch(lanes, outputs + row * (64 * len(lanes)))


@inline
def prefetch_outputs(lanes: Any, outputs: Any, word: Any, tables: Any, negatives: Any) -> None:
    """Ask for the row of a word, or for those of its path."""
    if negatives is None:
        for k in range(item(tables[3], word), item(tables[3], word + 1)):
            prefetch(lanes, outputs + 64 * len(lanes) * item(tables[4], k))
    else:
        prefetch(lanes, outputs + 64 * len(lanes) * np.int64(word))


@inline
def train_outputs(lanes: Any, outputs: Any, word: Any, negatives: Any, span: Any, step: Any) -> Any:
    """Move the outputs of a word and set the input's error; return how many terms of the loss that are.

    ``step`` is (the input's address, the error's, alpha, tables, buffers of rows, scores and costs).
    """
    if negatives is None:
        return _descend_path(lanes, outputs, word, step)
    x, error, alpha, _, rows, scores, costs = step
    # The target first, then negatives; one equal to the target is overwritten by the next (no branch).
    rows[0], n = word, np.uint64(1)
    for k in range(span[0], span[1]):
        row = item(negatives, k)
        rows[n] = row
        n += np.uint64(row != word)
    count = np.int64(n)
    # scores[k] = o_k·x, then its slope, then the update of both sides.
    dots(lanes, outputs, rows, count, x, scores)
    scores[0] = -scores[0]  # σ(f) is 1 - σ(-f): so the word is of one kind with the negatives
    # 16 scores at a time, the lanes of one vector.
    for k in range(0, count, 16):
        chance = slopes(scores.ctypes.data + 4 * k, min(16, count - k), MINUS_ONE, alpha, MAX_OUTPUT)
        add_nll(costs, np.uint64(0), chance)
    scores[0] = -scores[0]
    clear(lanes, error)
    update(lanes, outputs, rows, count, (x, error), scores)
    return count


@inline
def _descend_path(lanes: Any, outputs: Any, word: Any, step: Any) -> Any:
    """Do what ``train_outputs`` does with the nodes of a word's path, which are distinct: 16 are moved together."""
    x, error, alpha, tables, rows, scores, costs = step
    # tables[3:6] are starts, nodes and codes of all paths end to end.
    nodes, codes, first, last = tables[4], tables[5], item(tables[3], word), item(tables[3], word + 1)
    # The error of the input adds up over all nodes.
    clear(lanes, error)
    for begin in range(first, last, 16):
        n = min(16, last - begin)
        for k in range(n):
            rows[np.uint64(k)] = item(nodes, begin + k)
        # v·x of up to 16 nodes.
        dots(lanes, outputs, rows, n, x, scores)
        _negate_left(scores, codes, begin, n)
        add_nll(costs, np.uint64(0), slopes(scores.ctypes.data, n, MINUS_ONE, alpha, MAX_OUTPUT))
        _negate_left(scores, codes, begin, n)
        update(lanes, outputs, rows, n, (x, error), scores)
    return last - first


@inline
def _negate_left(scores: Any, codes: Any, begin: Any, n: Any) -> None:
    """Change the signs of code 0: σ(f) is 1 - σ(-f), so all are of one kind."""
    for k in range(n):
        if item(codes, begin + k) == 0:
            scores[np.uint64(k)] = -scores[np.uint64(k)]
