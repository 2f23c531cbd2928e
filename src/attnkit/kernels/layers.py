"""Input and output layers of the word2vec loops.

Inputs: the row of a word, or with subwords the rows of the word and its n-grams. As in fastText (Bojanowski et al.
2017, section 3.2), the whole error is added to each row, so their mean changes by the error too. A loop can therefore
update the mean like a row and add its change to all rows at the end. ``tables`` are ``LookupTables``; without subwords,
their lists of rows are empty.

Negative sampling (Mikolov et al. 2013): for an input x and a word o, the loss is -log σ(o·x) - Σ_k log σ(-n_k·x) over
words n drawn in proportion to count ** power; a drawn word equal to o is ignored.

Hierarchical softmax (Morin and Bengio 2005; Mikolov et al. 2013, section 2.1): for a path of nodes v and codes c, the
loss is -Σ log σ(±v·x), with plus for code 0. As in gensim, an output beyond ±6 has no gradient.

The argument ``negatives`` selects the output layer: an array for negative sampling, None for hierarchical softmax.
None has its own type, so numba compiles only one branch.
"""

from typing import Any

import numpy as np

from attnkit.kernels.jit import inline
from attnkit.kernels.logistic import slopes
from attnkit.kernels.sampling import drawn, random_bits
from attnkit.kernels.vector import add_to_row, add_to_rows, clear, dots, item, prefetch, sum_rows, update
from attnkit.kernels.word2vec_backend import rows

# Addresses are in bytes: a row takes 64 bytes per 16 floats.
STARTS, ROWS = 6, 7  #: indices of ``subword_starts`` and ``subword_rows`` in ``LookupTables``
ONE, MINUS_ONE = np.float32(1.0), np.float32(-1.0)
NOISE = np.uint64(0x6E6F697365)  #: key of the random stream of negatives, separate from that of window sizes
MAX_OUTPUT = np.float32(6.0)  #: scores at least this far from 0 have no gradient, as in gensim
_TINY = 1e-50

aligned_rows = inline(rows)


@inline
def load_input(lanes: Any, matrix: Any, word: Any, tables: Any, buffer: Any) -> Any:
    """Return the address of a word's input; ``buffer`` is two rows for a mean."""
    starts, size = tables[STARTS], 64 * len(lanes)
    if len(starts) == 0:
        # Without subwords, a word's input is its row: no copy.
        return matrix + size * np.int64(word)
    begin, end = starts[word], starts[word + 1]
    sum_rows(lanes, matrix, tables[ROWS][begin:end], end - begin, ONE / np.float32(end - begin), buffer)
    clear(lanes, buffer + size)
    # This copy of the mean is for ``store_input``.
    add_to_row(lanes, buffer + size, ONE, buffer)
    return np.int64(buffer)


@inline
def store_input(lanes: Any, matrix: Any, word: Any, tables: Any, buffer: Any) -> None:
    """Add the change since ``load_input`` to all rows of the word."""
    starts = tables[STARTS]
    if len(starts) > 0:
        begin, end = starts[word], starts[word + 1]
        # The second row of the buffer is the mean as loaded, so the difference is the change made by the loop.
        add_to_row(lanes, buffer, MINUS_ONE, buffer + 64 * len(lanes))
        add_to_rows(lanes, matrix, tables[ROWS][begin:end], end - begin, ONE, buffer)


@inline
def prefetch_input(lanes: Any, matrix: Any, word: Any, tables: Any) -> None:
    """Prefetch the input rows of a word."""
    starts, size = tables[STARTS], 64 * len(lanes)
    if len(starts) == 0:
        prefetch(lanes, matrix + size * np.int64(word))
    else:
        for k in range(starts[word], starts[word + 1]):
            prefetch(lanes, matrix + size * np.int64(tables[ROWS][k]))


@inline
def covered_words(left: Any, right: Any, first: Any, last: Any) -> Any:
    """Return the range of words that the windows of centres [first, last) cover."""
    # Windows at the edges extend beyond the piece.
    low, high = first, last
    for i in range(first, last):
        low, high = min(low, i - left[i]), max(high, i + right[i] + 1)
    return low, high


@inline
def max_input_rows(words: Any, tables: Any) -> Any:
    """Return the maximum number of input rows of any of the words."""
    starts, most = tables[STARTS], 1
    if len(starts) > 0:
        for word in words:
            most = max(most, starts[word + 1] - starts[word])
    return most


@inline
def context_rows(words: Any, i: Any, reach: Any, tables: Any, rows: Any) -> Any:
    """Write the input rows of all words of a window to ``rows``; return their number."""
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
    """Return the learning rate at a position of a piece."""
    # Linear from piece[3] to piece[4]; a piece is (begin, end, key, first alpha, last alpha).
    return np.float32(piece[3] + (piece[4] - piece[3]) * np.float32((position - piece[0]) / (piece[1] - piece[0])))


@inline
def add_nll(costs: Any, j: Any, chance: Any) -> Any:
    """Add -log(chance) to costs[j]; costs[j, 1] is a product, to save logarithms."""
    costs[j, 1] *= chance
    # Not "<=": NaN takes this branch as well, so that divergence is detected.
    if not costs[j, 1] > _TINY:
        costs[j, 0] -= np.log(costs[j, 1])
        costs[j, 1] = 1.0


@inline
def noise_key(piece: Any, position: Any) -> Any:
    """Return the random key of the negatives at a position."""
    # XOR with NOISE: negatives never share random numbers with window sizes.
    return random_bits(np.uint64(piece[2]) ^ NOISE, np.uint64(position))


@inline
def draw_negatives(lanes: Any, outputs: Any, key: Any, tables: Any, negatives: Any, span: Any) -> None:
    """Draw words into a span of ``negatives``, unless None, and prefetch their rows."""
    if negatives is not None:
        # tables[1:3] are the alias table of the noise distribution.
        for k in range(span[0], span[1]):
            row = drawn(random_bits(key, np.uint64(k - span[0])), tables[1], tables[2])
            negatives[np.uint64(k)] = row
            prefetch(lanes, outputs + row * (64 * len(lanes)))


@inline
def prefetch_outputs(lanes: Any, outputs: Any, word: Any, tables: Any, negatives: Any) -> None:
    """Prefetch the output row of a word, or the rows of its path."""
    if negatives is None:
        for k in range(item(tables[3], word), item(tables[3], word + 1)):
            prefetch(lanes, outputs + 64 * len(lanes) * item(tables[4], k))
    else:
        prefetch(lanes, outputs + 64 * len(lanes) * np.int64(word))


@inline
def train_outputs(lanes: Any, outputs: Any, word: Any, negatives: Any, span: Any, step: Any) -> Any:
    """Update a word's outputs, set the input's error and return the number of terms.

    ``step`` is (input address, error address, alpha, tables, row buffer, score buffer, costs).
    """
    if negatives is None:
        return _descend_path(lanes, outputs, word, step)
    x, error, alpha, _, rows, scores, costs = step
    # The target first, then negatives; a negative equal to the target is overwritten by the next (no branch).
    rows[0], n = word, np.uint64(1)
    for k in range(span[0], span[1]):
        row = item(negatives, k)
        rows[n] = row
        n += np.uint64(row != word)
    count = np.int64(n)
    # scores[k] = o_k·x, then its slope, then the update of both sides.
    dots(lanes, outputs, rows, count, x, scores)
    scores[0] = -scores[0]  # σ(f) = 1 - σ(-f): the target is treated like the negatives
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
    """Update the nodes of a word's path, 16 at a time; otherwise as ``train_outputs``."""
    x, error, alpha, tables, rows, scores, costs = step
    # tables[3:6] are starts, nodes and codes of all paths end to end.
    nodes, codes, first, last = tables[4], tables[5], item(tables[3], word), item(tables[3], word + 1)
    # The error of the input is accumulated over all nodes.
    clear(lanes, error)
    for begin in range(first, last, 16):
        n = min(16, last - begin)
        for k in range(n):
            rows[np.uint64(k)] = item(nodes, begin + k)
        # v·x of up to 16 nodes, which are distinct and can be updated together.
        dots(lanes, outputs, rows, n, x, scores)
        _negate_left(scores, codes, begin, n)
        add_nll(costs, np.uint64(0), slopes(scores.ctypes.data, n, MINUS_ONE, alpha, MAX_OUTPUT))
        _negate_left(scores, codes, begin, n)
        update(lanes, outputs, rows, n, (x, error), scores)
    return last - first


@inline
def _negate_left(scores: Any, codes: Any, begin: Any, n: Any) -> None:
    """Negate scores of code 0: σ(f) = 1 - σ(-f), so both codes share one formula."""
    for k in range(n):
        if item(codes, begin + k) == 0:
            scores[np.uint64(k)] = -scores[np.uint64(k)]
