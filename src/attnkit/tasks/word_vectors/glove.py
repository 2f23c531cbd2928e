"""GloVe as work in pieces: co-occurrences are counted once, into the run's folder of data, then factored pair by pair.

The wanted vectors are W + W', as the paper takes them (section 4.2).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from attnkit.data.cooccurrence import count_pairs
from attnkit.data.words import Encoded
from attnkit.errors import DataError
from attnkit.kernels.compiled import has_numba
from attnkit.kernels.glove import Knobs, Parameters, descend
from attnkit.kernels.word2vec import Tally
from attnkit.tasks.word_vectors.config import Word2VecConfig
from attnkit.tasks.word_vectors.matrices import INPUTS, OUTPUTS, Matrices, shapes

FOLDER = "cooccurrence"
PIECE = 1 << 16
"""Pairs of a piece."""
_DRAWN = (INPUTS, OUTPUTS, f"{INPUTS}_bias", f"{OUTPUTS}_bias")
_BLOCK = 1 << 12  # rows


class GloveWork:
    """Pieces of co-occurrences; satisfies ``work.Work``. The words of a ``Tally`` are pairs."""

    def __init__(self, config: Word2VecConfig, encoded: Encoded, folder: Path, tell: Callable[[str], None]) -> None:
        """Count the co-occurrences, or take those that ``folder`` holds. Raises ``DataError`` if there are none."""
        memory = int(config.glove.memory * 1e9)
        self.pairs = count_pairs(folder / FOLDER, encoded.store, config.window, memory, tell)
        if not len(self.pairs.counts):
            raise DataError("no two words stand in one line", help="give text whose lines have several words")
        self.shapes = shapes(config, len(encoded.words))
        self.n_pieces = -(-len(self.pairs.counts) // PIECE)
        self.where = "compiled loops" if has_numba() else "numpy"
        self.concurrent = has_numba()
        self._config = config
        self._knobs = Knobs(config.alpha, config.glove.x_max, config.glove.exponent)

    def begin(self, matrices: Matrices) -> None:
        """Draw vectors and biases evenly within ±0.5 / D; the sums of squares stay 0."""
        dim = self._config.dim
        for number, name in enumerate(_DRAWN):
            random = np.random.default_rng([self._config.seed, 0x676C6F76, number])
            matrix = matrices[name][:, : self.shapes[name].width]
            for begin in range(0, len(matrix), _BLOCK):
                block = matrix[begin : begin + _BLOCK]
                block[:] = (random.random(block.shape, np.float32) - np.float32(0.5)) / np.float32(dim)

    def piece(self, matrices: Matrices, epoch: int, number: int) -> Tally:
        """Take a step for each pair of a piece; the pieces of all epochs are the same."""
        span = number * PIECE, min((number + 1) * PIECE, len(self.pairs.counts))
        loss, terms = descend(_parameters(matrices), self.pairs, span, self._knobs)
        return Tally(loss, terms, terms)

    def rate(self, step: int) -> float:
        """Return the learning rate, which AdaGrad alone makes smaller."""
        return self._config.alpha

    def settle(self) -> None:
        """Do nothing: the matrices are worked on where they lie."""


def _parameters(matrices: Matrices) -> Parameters:
    ends = ("", "_squares", "_bias", "_bias_squares")
    return Parameters(*(matrices[f"{name}{end}"] for end in ends for name in (INPUTS, OUTPUTS)))


def sum_vectors(words: NDArray[np.float32], contexts: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return W + W'."""
    return np.add(words, contexts, dtype=np.float32)
