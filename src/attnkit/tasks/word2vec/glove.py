"""GloVe as work in pieces: co-occurrences are counted once, into the run's folder of data, then factored pair by pair.

The vectors that are wanted are W + W' (``matrices.wanted``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from attnkit.data.cooccurrence import count_pairs
from attnkit.data.words import Encoded
from attnkit.kernels.glove import GloveSettings, Parameters, compiled_way, train_pairs
from attnkit.kernels.word2vec import PieceStats
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.matrices import INPUTS, OUTPUTS, Matrices, shapes, threads

FOLDER = "cooccurrence"
PIECE = 1 << 16
"""Pairs of a piece."""
_DRAWN = (INPUTS, OUTPUTS, f"{INPUTS}_bias", f"{OUTPUTS}_bias")
_BLOCK = 1 << 12  # rows


class GloveWorkload:
    """Pieces of co-occurrences; satisfies ``work.Workload``. The words of a ``Tally`` are pairs."""

    def __init__(self, config: Word2VecConfig, encoded: Encoded, folder: Path, tell: Callable[[str], None]) -> None:
        """Count the co-occurrences, or take those that ``folder`` holds."""
        memory = int(config.glove.memory * 1e9)
        self.pairs = count_pairs(folder / FOLDER, encoded.store, config.window, memory, tell)
        assert len(self.pairs.counts), "encoded text has a line of two words"
        self.shapes = shapes(config, len(encoded.words))
        self.n_pieces = -(-len(self.pairs.counts) // PIECE)
        self.concurrent = compiled_way() is not None
        self.where = f"compiled loops, {threads(config)}" if self.concurrent else "numpy"
        self._config = config
        self._knobs = GloveSettings(config.alpha, config.glove.x_max, config.glove.exponent)

    def begin(self, matrices: Matrices) -> None:
        """Draw vectors and biases evenly within ±0.5 / D; the sums of squares stay 0."""
        dim = self._config.dim
        for number, name in enumerate(_DRAWN):
            random = np.random.default_rng([self._config.seed, 0x676C6F76, number])
            matrix = matrices[name][:, : self.shapes[name].width]
            for begin in range(0, len(matrix), _BLOCK):
                block = matrix[begin : begin + _BLOCK]
                block[:] = (random.random(block.shape, np.float32) - np.float32(0.5)) / np.float32(dim)

    def piece(self, matrices: Matrices, epoch: int, number: int) -> PieceStats:
        """Take a step for each pair of a piece; the pieces of all epochs are the same."""
        span = number * PIECE, min((number + 1) * PIECE, len(self.pairs.counts))
        loss, terms = train_pairs(_parameters(matrices), self.pairs, span, self._knobs)
        return PieceStats(loss, terms, terms)

    def rate(self, step: int) -> float:
        """Return the learning rate, which AdaGrad alone makes smaller."""
        return self._config.alpha

    def settle(self) -> None:
        """Do nothing: the matrices are worked on where they lie."""


def _parameters(matrices: Matrices) -> Parameters:
    ends = ("", "_squares", "_bias", "_bias_squares")
    return Parameters(*(matrices[f"{name}{end}"] for end in ends for name in (INPUTS, OUTPUTS)))
