"""Training work of an epoch in numbered pieces. Torch is imported on demand.

A piece covers encoded text or co-occurrences. Its result depends only on its initial matrices, epoch and number.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from attnkit.data.cooccurrence import count_pairs
from attnkit.data.words import Encoded
from attnkit.errors import UsageError
from attnkit.kernels.glove import GloveSettings, Parameters, compiled_loop, train_pairs
from attnkit.kernels.jit import has_numba
from attnkit.kernels.sampling import key_of
from attnkit.kernels.word2vec_backend import CompiledBackend, LoopSpec, PieceStats, Text, Weights
from attnkit.tasks.word2vec.config import Word2VecConfig
from attnkit.tasks.word2vec.matrices import FEW, INPUTS, OUTPUTS, Matrices, draw, lookup_tables, shapes

if TYPE_CHECKING:
    from attnkit.tasks.word2vec.torch_loop import TorchLoops

MAX_PIECE = 1 << 16  #: maximum words per piece if all threads share the matrices
MIN_PIECE = 1 << 10  #: minimum words per piece, for short texts and for slow losses
ROUND = 200_000  #: words between two merges of the copies in a deterministic run
GLOVE_PIECE = 1 << 16  #: word pairs per piece of co-occurrences
GLOVE_FOLDER = "cooccurrence"  #: folder of the co-occurrences in RUN/data


def chunk_boundaries(offsets: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return piece boundaries (n + 1,), at line ends unless a line exceeds ``most``.

    >>> chunk_boundaries(np.array([0, 3, 6, 16]), 4)
    array([ 0,  3,  6, 10, 14, 16])
    """
    total, place, found = int(offsets[-1]), 0, [0]
    while place < total:
        end = min(place + most, total)
        if end < total:
            line = int(offsets[np.searchsorted(offsets, end, side="right") - 1])
            end = line if line > place else end
        found.append(end)
        place = end
    return np.array(found, np.int64)


def n_threads(config: Word2VecConfig) -> int:
    """Return the number of threads that train at once.

    All paths of a Huffman tree begin at the same rows: with two threads that share them, training takes twice as long.
    """
    return 1 if config.loss == "hierarchical" and not config.deterministic else config.threads


def n_copies(config: Word2VecConfig) -> int:
    """Return the number of matrix copies to train and merge; 1 if threads share one."""
    return config.threads if config.deterministic and not config.needs_torch else 1


def piece_size(n_words: int, copies: int, slow: bool = False) -> int:
    """Return the maximum words per piece, for a number of matrix ``copies``.

    With one copy, the thread count may change on resume. ``slow`` pieces are short, since a stop waits for their end.
    """
    if slow:
        return MIN_PIECE
    if copies == 1:
        return min(MAX_PIECE, max(MIN_PIECE, -(-n_words // 64)))
    return max(MIN_PIECE, min(ROUND // copies, -(-n_words // (8 * copies))))


class TextWorkload:
    """Pieces of encoded text, for skip-gram and CBOW."""

    def __init__(self, config: Word2VecConfig, encoded: Encoded) -> None:
        """Split the text into pieces, without reading it; choose compiled or torch loops."""
        store = encoded.store
        self.shapes = shapes(config, len(encoded.words))  #: shapes of all trained matrices
        self.concurrent = not config.needs_torch  #: whether several threads may train pieces at the same time
        slow = config.loss == "full" and config.device != "cuda"  # each word is scored against the whole vocabulary
        self._borders = chunk_boundaries(store.offsets, piece_size(int(store.offsets[-1]), n_copies(config), slow))
        self._n_words = int(self._borders[-1])
        self.n_pieces = len(self._borders) - 1  #: pieces per epoch
        self._config = config
        self._store, self._text = store, Text(store.ids, store.offsets)
        self._loops: CompiledBackend | TorchLoops
        self.where: str  #: device and loops, for messages
        if config.needs_torch or not has_numba():
            from attnkit.tasks.word2vec.torch_loop import TorchLoops

            self._loops = TorchLoops(config, encoded)
            self.where = self._loops.where
        else:
            assert config.loss != "full"
            chosen = {"method", "context", "dim", "window", "dynamic_window", "negative"}
            exact, subwords = config.exact or len(encoded.words) < FEW, config.subwords is not None
            spec = LoopSpec(**config.model_dump(include=chosen), output=config.loss, exact=exact, subwords=subwords)
            self._loops = CompiledBackend(spec, lookup_tables(config, encoded), store.ids.dtype)
            self.where = f"compiled loops, {_threads(config)}"

    def begin(self, matrices: Matrices) -> None:
        """Initialize the inputs at random; the outputs stay 0."""
        width = self.shapes[INPUTS].width
        draw(matrices[INPUTS], width, (self._config.seed, 0x77327665), width)

    def piece(self, matrices: Matrices, epoch: int, number: int) -> PieceStats:
        """Train on one piece; the caller may use the matrices again after ``settle``."""
        first, last = (int(place) for place in self._borders[number : number + 2])
        done = epoch * self._n_words
        weights, key = Weights(matrices[INPUTS], matrices[OUTPUTS]), key_of(self._config.seed, epoch)
        alphas = self._alpha(done + first), self._alpha(done + last)
        stats = self._loops.piece(weights, self._text, (first, last), key, alphas)
        # Mapped pages count as memory of this process until they are released; other threads can read them again.
        self._store.release(first, last)
        return stats

    def rate(self, step: int) -> float:
        """Return the learning rate after ``step`` pieces, counted over all epochs."""
        epoch, number = divmod(step, self.n_pieces)
        return self._alpha(epoch * self._n_words + int(self._borders[number]))

    def _alpha(self, n_done: int) -> float:
        """Return the learning rate after ``n_done`` words; it decays linearly."""
        config = self._config
        return config.alpha + (config.min_alpha - config.alpha) * (n_done / (config.epochs * self._n_words))

    def settle(self) -> None:
        """Update the matrices if torch holds the weights on another device."""
        if not isinstance(self._loops, CompiledBackend):
            self._loops.settle()


class GloveWorkload:
    """Pieces of co-occurrences, for GloVe; ``PieceStats.words`` counts pairs.

    Co-occurrences are counted once, in ``folder``, then factorized. The vectors are W + W' (``matrices.wanted``).
    """

    def __init__(self, config: Word2VecConfig, encoded: Encoded, folder: Path, tell: Callable[[str], None]) -> None:
        """Count the co-occurrences, or reuse the counts in ``folder``."""
        memory = int(config.glove.memory * 1e9)
        self._pairs = count_pairs(folder / GLOVE_FOLDER, encoded.store, config.window, memory, tell)
        assert len(self._pairs.counts), "no line of the encoded text has two words"
        self.shapes = shapes(config, len(encoded.words))
        self.n_pieces = -(-len(self._pairs.counts) // GLOVE_PIECE)
        self.concurrent = compiled_loop() is not None
        self.where = f"compiled loops, {_threads(config)}" if self.concurrent else "numpy"
        self._config = config
        self._settings = GloveSettings(config.alpha, config.glove.cutoff(encoded.n_raw), config.glove.exponent)

    def begin(self, matrices: Matrices) -> None:
        """Draw vectors and biases uniformly within ±0.5 / D; sums of squares stay 0."""
        for number, name in enumerate((INPUTS, OUTPUTS, f"{INPUTS}_bias", f"{OUTPUTS}_bias")):
            key = (self._config.seed, 0x676C6F76, number)
            draw(matrices[name], self.shapes[name].width, key, self._config.dim)

    def piece(self, matrices: Matrices, epoch: int, number: int) -> PieceStats:
        """Take a step per pair of a piece; pieces are the same in every epoch."""
        ends = ("", "_squares", "_bias", "_bias_squares")
        parameters = Parameters(*(matrices[f"{name}{end}"] for end in ends for name in (INPUTS, OUTPUTS)))
        span = number * GLOVE_PIECE, min((number + 1) * GLOVE_PIECE, len(self._pairs.counts))
        loss, terms = train_pairs(parameters, self._pairs, span, self._settings)
        return PieceStats(loss, terms, terms)

    def rate(self, step: int) -> float:
        """Return the constant learning rate, which AdaGrad scales per parameter."""
        return self._config.alpha

    def settle(self) -> None:
        """Do nothing: training updates the matrices in place."""


Workload: TypeAlias = TextWorkload | GloveWorkload


def build_workload(config: Word2VecConfig, encoded: Encoded, folder: Path, tell: Callable[[str], None]) -> Workload:
    """Return the workload; GloVe stores counts in ``folder``. Raises ``UsageError``."""
    check_vocabulary_size(config, len(encoded.words))
    if config.method == "glove":
        return GloveWorkload(config, encoded, folder, tell)
    return TextWorkload(config, encoded)


def check_available(config: Word2VecConfig) -> None:
    """Raise ``UsageError`` if numba or CUDA is needed but unavailable."""
    if config.subwords is not None and not has_numba():
        raise UsageError("subwords need numba", where="subwords", help="pip install numba, or leave them out")
    if config.device == "cuda":
        from attnkit.runtime.devices import choose_device

        choose_device(config.device)


def check_vocabulary_size(config: Word2VecConfig, n_words: int) -> None:
    """Raise ``UsageError`` if the vocabulary has too few words to draw negatives."""
    n_others = n_words - 1
    if config.method != "glove" and config.loss == "negative" and config.negative > n_others:
        what = f"negative={config.negative} exceeds the {n_others} other words of the vocabulary"
        help = "add text, lower --negative, or use --loss full"
        raise UsageError(what, where="negative", help=help)


def _threads(config: Word2VecConfig) -> str:
    """Return a description of the threads, for messages."""
    several, n = "s that share the weights" if not config.deterministic else "s with a copy each", n_threads(config)
    return "1 thread" if n == 1 else f"{n} thread{several}"
